# Test hosts like Kubernetes' pods: named NAME-INDEX, each with its own /etc/hosts and a name server
# that knows no names. Sourced instead of hosts.sh.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)
domain=train.default.svc.cluster.local

# pod INDEX HOST: makes the host that pod, with a name server that knows no names.
pod() {
  printf '127.0.0.1 localhost\n%s train-%s.%s train-%s\n' "$(host_addr "$2")" "$1" $domain "$1" > "hosts.$2"
  echo 'nameserver 127.0.0.1' > resolv
  on "$2" bash -c "hostname train-$1 && mount --bind hosts.$2 /etc/hosts && mount --bind resolv /etc/resolv.conf" ||
    fail "host $2 is no pod"
}
# knows HOST INDEX ADDRESS: the host resolves that pod to this address from now on. Rewrites hosts.HOST in
# place, because it is mounted over /etc/hosts.
knows() {
  { grep -v "train-$2[. ]" "hosts.$1"; echo "$3 train-$2.$domain"; } > new; cat new > "hosts.$1"
}
# emit ARGS…: the command of its pods, as words in ${command[@]}, with the secret's path on this
# host. $kind is the kind of manifest that --emit writes.
emit() {
  dlaunch --emit "${kind:-kubernetes}" --image i --job-id train --nproc 2 --join-timeout 60 "$@" > job.yaml || fail "emit"
  python3 -c '
import json, re
text = open("job.yaml").read()
words = re.search(r"command:\n((?: +- \".*\n)+)", text).group(1)
print("\n".join(json.loads(line.strip()[2:]).replace("$$", "$") for line in words.splitlines()))' |
    sed "s#^/etc/dlaunch/secret\$#$tmp/secret#" > command
  mapfile -t command < command
}
# start_pod INDEX HOST: with the environment of the kind.
start_pod() {
  local variables=(JOB_COMPLETION_INDEX="$1")
  [ "${kind:-}" != lws ] || variables=(LWS_WORKER_INDEX="$1" LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=train-0.train.default)
  start_on "$2" env "${variables[@]}" "${command[@]}" >"out.$1" 2>"err.$1" </dev/null
  dlaunch_of[$1]=$!
}
end_pod() { # INDEX: with 0
  local code
  wait_until 120 eval "! alive ${dlaunch_of[$1]} 2>/dev/null" || { tail err.* out.* >&2; fail "pod $1 does not end"; }
  wait "${dlaunch_of[$1]}"; code=$?
  [ $code = 0 ] || { tail err.* out.* >&2; fail "pod $1 exits with $code"; }
}
dlaunch_of=()

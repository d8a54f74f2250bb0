# The command that --emit kubernetes writes, on hosts that are as pods are: named NAME-INDEX, with an
# /etc/hosts of their own that does not have the leading pod at first, and then at another address.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
command -v python3 >/dev/null || skip "python3 is not installed"
hosts_up 4
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $MASTER_ADDR $(hostname)'
domain=train.default.svc.cluster.local

# pod INDEX HOST: the host is that pod, with a name server that knows nothing.
pod() {
  printf '127.0.0.1 localhost\n%s train-%s.%s train-%s\n' "$(host_addr "$2")" "$1" $domain "$1" > "hosts.$2"
  echo 'nameserver 127.0.0.1' > resolv
  on "$2" bash -c "hostname train-$1 && mount --bind hosts.$2 /etc/hosts && mount --bind resolv /etc/resolv.conf" ||
    fail "host $2 is no pod"
}
# knows HOST INDEX ADDRESS: what its DNS says from now on; the file stays the same.
knows() {
  { grep -v "train-$2[. ]" "hosts.$1"; echo "$3 train-$2.$domain"; } > new; cat new > "hosts.$1"
}
# The words of the command, a line each, with the secret where it is here.
emit() {
  dlaunch --emit kubernetes --image i --job-id train --nnodes 3 --nproc 2 --join-timeout 60 "$@" > job.yaml || fail "emit"
  python3 -c '
import json, re
text = open("job.yaml").read()
words = re.search(r"command:\n((?: +- \".*\n)+)", text).group(1)
print("\n".join(json.loads(line.strip()[2:]).replace("$$", "$") for line in words.splitlines()))' |
    sed "s#^/etc/dlaunch/secret\$#$tmp/secret#" > command
  mapfile -t command < command
}
# start_pod INDEX HOST
start_pod() {
  start_on "$2" env JOB_COMPLETION_INDEX="$1" "${command[@]}" >"out.$1" 2>"err.$1" </dev/null
  dlaunch_of[$1]=$!
}
end_pod() { # INDEX: with 0
  local code
  wait_until 30 eval "! alive ${dlaunch_of[$1]} 2>/dev/null" || { tail err.* out.* >&2; fail "pod $1 does not end"; }
  wait "${dlaunch_of[$1]}"; code=$?
  [ $code = 0 ] || { tail err.* out.* >&2; fail "pod $1 exits with $code"; }
}
said() { grep -qE "$2" "err.$1"; }
told() { wait_until 20 said "$@" || { tail err.* >&2; fail "pod $1 does not say '$2'"; }; }
dlaunch_of=()
for i in 0 1 2; do pod $i $((i + 1)); done

# The leading pod is the last: the others say what they wait for, whatever that is by then.
emit bash -c "$where"
start_pod 2 3; start_pod 1 2
told 2 "waiting for the leading dlaunch at train-0.$domain:29400: resolve 'train-0.$domain'"
for h in 2 3; do knows $h 0 "$(host_addr 1)"; done
told 2 'waiting for the leading dlaunch at .*: Connection refused'
start_pod 0 1
for i in 0 1 2; do end_pod $i; done
for r in 0 1 2 3 4 5; do
  grep -qx "\[$r\] $r/6 $((r % 2)) $((r / 2)) 10.77.0.1 train-$((r / 2))" out.$((r / 2)) || { cat out.* >&2; fail "rank $r"; }
done

# The leading pod is lost, and comes back with another address; the others are still the same.
emit bash -c 'echo in >>running; until [ -e enough ]; do read -rt 0.1 <> <(:); done; echo done $RANK $MASTER_ADDR'
for i in 0 1 2; do start_pod $i $((i + 1)); done
workers() { [ "$(grep -c in running 2>/dev/null)" = "$1" ]; }
wait_until 20 workers 6 || { tail err.* >&2; fail "the job does not begin"; }
host_kill 1
for i in 1 2; do told $i 'lost the leading dlaunch'; done
rm running; pod 0 4
for h in 2 3; do knows $h 0 "$(host_addr 4)"; done
touch enough; start_pod 0 4
for i in 0 1 2; do end_pod $i; done
for r in 0 1 2 3 4 5; do
  grep -qx "\[$r\] done $r 10.77.0.4" out.$((r / 2)) || { cat out.* >&2; fail "rank $r, the second time"; }
done

# A pod that has no name of a Service says what it lacks.
printf '%s train-1\n' "$(host_addr 2)" > hosts.2
run on 2 env JOB_COMPLETION_INDEX=1 "${command[@]}"; expect_code 64
expect_err "this pod's name 'train-1' is not one that leads to pod 0"

# A name server that does not answer does not keep a signal waiting for the 10 s that resolvers do.
pod 1 2; link_cut 3 drop; echo "nameserver $(host_addr 3)" > resolv
start_pod 1 2
asks() { on 2 ss --no-header --udp --numeric dst "$(host_addr 3):53" | grep -q .; }
wait_until 20 asks || fail "the name server is not asked"
kill -INT "${dlaunch_of[1]}"
wait_until 4 eval "! alive ${dlaunch_of[1]} 2>/dev/null" || fail "an interrupt waits for the name server"

# The command that --emit kubernetes writes, on hosts like pods: named NAME-INDEX, with an /etc/hosts of
# their own. This file lacks the leading pod at first, and later has another address of it.
source "$SOURCE/tests/hosts/pods.sh" || exit 1
hosts_up 4
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $MASTER_ADDR $(hostname)'
said() { grep -qE "$2" "err.$1"; }
told() { wait_until said "$@" || { tail err.* >&2; fail "pod $1 does not say '$2'"; }; }
for i in 0 1 2; do pod $i $((i + 1)); done

# The leading pod starts last: the others say what they wait for at each moment.
emit --nnodes 3 bash -c "$where"
start_pod 2 3; start_pod 1 2
told 2 "waiting for the leading dlaunch at train-0.$domain:29400: resolve 'train-0.$domain'"
for h in 2 3; do knows $h 0 "$(host_addr 1)"; done
told 2 'waiting for the leading dlaunch at .*: Connection refused'
start_pod 0 1
for i in 0 1 2; do end_pod $i; done
for r in 0 1 2 3 4 5; do
  grep -qx "\[$r\] $r/6 $((r % 2)) $((r / 2)) 10.77.0.1 train-$((r / 2))" out.$((r / 2)) || { cat out.* >&2; fail "rank $r"; }
done

# The leading pod is lost, and comes back with another address. The others keep their processes.
emit --nnodes 3 bash -c 'echo in >>running; until [ -e enough ]; do read -rt 0.1 <> <(:); done; echo done $RANK $MASTER_ADDR'
for i in 0 1 2; do start_pod $i $((i + 1)); done
workers() { [ "$(grep -c in running 2>/dev/null)" = "$1" ]; }
wait_until workers 6 || { tail err.* >&2; fail "the job does not begin"; }
host_kill 1
for i in 1 2; do told $i 'lost the leading dlaunch'; done
rm running; pod 0 4
for h in 2 3; do knows $h 0 "$(host_addr 4)"; done
touch enough; start_pod 0 4
for i in 0 1 2; do end_pod $i; done
for r in 0 1 2 3 4 5; do
  grep -qx "\[$r\] done $r 10.77.0.4" out.$((r / 2)) || { cat out.* >&2; fail "rank $r, the second time"; }
done

# A group of a LeaderWorkerSet: its workers have names made from the leading pod's, which is in a variable.
for h in 1 2; do printf '127.0.0.1 localhost\n%s train-0%s\n' "$(host_addr $h)" "$([ $h = 1 ] || echo -1)" > hosts.$h; done
on 1 hostname train-0; on 2 hostname train-0-1
kind=lws; emit --nnodes 2 bash -c "$where"
start_pod 1 2
told 1 "waiting for the leading dlaunch at train-0.train.default:29400: resolve 'train-0.train.default'"
echo "$(host_addr 1) train-0.train.default" >> hosts.2
start_pod 0 1
for i in 0 1; do end_pod $i; done; kind=
for r in 0 1 2 3; do
  grep -qx "\[$r\] $r/4 $((r % 2)) $((r / 2)) 10.77.0.1 train-0$([ $r -lt 2 ] || echo -1)" out.$((r / 2)) ||
    { cat out.* >&2; fail "rank $r of the group"; }
done

# Kubernetes ends a pod of an elastic job, as when it drains a node. The members there leave at their next
# commit, which does not count for --max-restarts, and the pod comes back. With fewer than MIN pods the job would end.
for i in 0 1 2; do on $((i + 1)) hostname train-$i; pod $i $((i + 1)); done
for h in 2 3; do knows $h 0 "$(host_addr 1)"; done
in_round() {
  [ "$(sed -n 's/^round \([0-9]*\) .*/\1/p' log 2>/dev/null | sort -n | tail -1)" = "$1" ] &&
    [ "$(grep -c "^round $1 .* size $2 " log)" = "$2" ]
}
emit --nnodes 2:3 --max-restarts 1 "$BUILD/tests/support/elastic_worker" --steps 1000000000 --step-ms 5 --until "$tmp/stop" \
  --log "$tmp/log" --size 2000 --shard 1003
for i in 0 1 2; do start_pod $i $((i + 1)); done
wait_until in_round 1 6 || { tail err.* >&2; fail "the elastic job does not begin"; }
kill -TERM "${dlaunch_of[2]}"
wait_until in_round 2 4 || { tail err.* log >&2; fail "no round without pod 2"; }
wait_until eval "! alive ${dlaunch_of[2]} 2>/dev/null" || fail "pod 2 does not end"
wait "${dlaunch_of[2]}"; [ $? = 143 ] || fail "the exit code of pod 2, which Kubernetes is to replace"
! grep -q 'restarts used' err.0 || { cat err.0 >&2; fail "it cost a restart"; }
start_pod 2 3
wait_until in_round 3 6 || { tail err.* log >&2; fail "pod 2 is not taken in again"; }
touch stop; for i in 0 1 2; do end_pod $i; done

# A pod without the name of a Service says what it lacks.
on 2 hostname train-1; printf '%s train-1\n' "$(host_addr 2)" > hosts.2
run on 2 env JOB_COMPLETION_INDEX=1 "${command[@]}"; expect_code 64
expect_err "this pod's name 'train-1' is not one that leads to pod 0"

# A signal acts at once, although resolvers wait 10 s for a name server that does not answer.
pod 1 2; link_cut 3 drop; echo "nameserver $(host_addr 3)" > resolv
start_pod 1 2
asks() { on 2 ss --no-header --udp --numeric dst "$(host_addr 3):53" | grep -q .; }
wait_until asks || fail "the name server is not asked"
kill -INT "${dlaunch_of[1]}"
wait_until 8 eval "! alive ${dlaunch_of[1]} 2>/dev/null" || fail "an interrupt waits for the name server"

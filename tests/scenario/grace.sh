# A worker that ignores SIGTERM is killed right after --grace; --timeout ends a job.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 2 --grace 1 bash -c 'trap "" TERM; [ $RANK = 1 ] && { until [ -e go ]; do read -rt 0.01 <> <(:); done; echo ${EPOCHREALTIME/./} >failed; exit 7; }; touch go; while :; do read -rt 1 <> <(:); done'
expect_code 7
ms=$(($(now_ms) - $(<failed) / 1000))  # from the failure, without the start of dlaunch
[ "$ms" -ge 1000 ] && [ "$ms" -le 9500 ] || fail "took $ms ms with a grace of 1 s"
expect_err '1 had to be killed after the grace of 1 s'

run dlaunch --nproc 2 --timeout 0.5 --grace 40s sleep 60
expect_code 75; expect_under 30000
expect_err 'timeout'

# A shell ends at once, but its program still gets the time of --grace.
cat >saves.sh <<'P'
exec 9<> <(:)
trap 'read -rt 1.5 -u 9; echo "$RANK saved"; exit 0' TERM
echo "$RANK runs"
while :; do read -rt 0.05 -u 9; done
P
dlaunch --nproc 2 --grace 20 sh -c 'bash saves.sh; echo not reached' >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until eval '[ "$(grep -c runs out)" = 2 ]' || fail "no start"
began=$(now_ms); kill -TERM "$keeper"; wait "$keeper"; code=$?; ms=$(($(now_ms) - began))
expect_code 143; expect_out '^\[0\] 0 saved$'; expect_out '^\[1\] 1 saved$'; expect_under 17000

# Processes that clean up after a worker have time for it, also if the worker is killed.
cat >shared.py <<'P'
import os, signal, sys, time
from multiprocessing import shared_memory
print(shared_memory.SharedMemory(create=True, size=4096).name, file=open("names", "a"), flush=True)
if sys.argv[1] == "killed" and os.environ["RANK"] == "0":
    while len(open("names").readlines()) % 2:  # the other worker has a process that cleans up, too
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(0)
P
for how in done killed; do
  run dlaunch --nproc 2 --max-restarts 1 shared.py $how; expect_code $([ $how = done ] && echo 0 || echo 137)
  while read -r name; do [ ! -e "/dev/shm/$name" ] || fail "$how: $name is left in /dev/shm"; done <names
done
[ "$(wc -l <names)" -ge 4 ] || fail "not run: $(cat err)"

# dlaunch kills processes that do not end by themselves, and says so if nothing had failed.
run dlaunch --nproc 2 bash -c 'setsid sleep 1000 & echo $! >pid.$RANK'
expect_code 0; expect_err 'rank 1 has ended and left sleep \(pid [0-9]+\) behind; dlaunch kills it'
for rank in 0 1; do ! kill -0 "$(cat pid.$rank)" 2>/dev/null || fail "the sleep of rank $rank runs"; done

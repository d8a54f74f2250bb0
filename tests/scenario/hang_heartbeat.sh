# Heartbeats: a worker that sends no more of them hangs, whatever language it is in. Once it has sent one, silence counts;
# a worker that sends none is not judged by them.
source "$SOURCE/tests/scenario/common.sh"

# Rank 1 stops after the third heartbeat, in the first round.
cat >beats.sh <<'W'
i=0
while [ ! -e enough ]; do
  i=$((i + 1)); echo >&"$DLAUNCH_HEARTBEAT_FD"
  [ "$RANK$DLAUNCH_ROUND$i" != 113 ] || exec sleep 1000
  sleep 0.2
done
W
run dlaunch --nproc 3 --hang-timeout 3s sh beats.sh
expect_code 137; expect_under 60000
expect_err 'rank 1 has sent no heartbeat, for [0-9.]+ s now; it is replaced after 3 s'
expect_err 'rank 1 .* failed first: it hung'; expect_err 'stacks of rank 1'

run_until_enough() { "$@" >out 2>err </dev/null & started+=($!); job=$!; }
run_until_enough dlaunch --nproc 3 --hang-timeout 3s --max-restarts 1 sh beats.sh
wait_until grep -q 'rank 1 .* it hung, .*; restarting all workers: round 2' err || fail 'no second round'
touch enough; wait "$job" || fail "exit code $?"
[ "$(grep -c 'it hung' err)" = 1 ] || fail 'it hung more than once'
rm enough

# All stop at once.
run dlaunch --nproc 2 --hang-timeout 2s sh -c 'echo >&$DLAUNCH_HEARTBEAT_FD; exec sleep 1000'
expect_code 137; expect_err 'no rank has sent a heartbeat'

# Without a watch the descriptor is there, too, and a full pipe does not hold up the program.
run dlaunch --nproc 1 --hang-warning 0 sh -c 'echo >&$DLAUNCH_HEARTBEAT_FD && echo taken
  head -c 1000000 /dev/zero >&$DLAUNCH_HEARTBEAT_FD 2>/dev/null; echo goes on'
expect_code 0; expect_out 'taken'; expect_out 'goes on'

# A dlaunch that a worker starts gives its workers their own.
run dlaunch --nproc 1 dlaunch --nproc 1 sh -c 'echo >&$DLAUNCH_HEARTBEAT_FD && echo inner'
expect_code 0; expect_out 'inner'

# libdlring's call and Python's.
need_package
python=$(command -v python3); export PYTHONPATH=$BUILD/python
"$python" -c 'import dlaunch' 2>/dev/null || skip 'heartbeats in Python: python3 cannot load the package'
cat >beats.py <<'P'
import os, subprocess, sys, time
import dlaunch

def reused():
    """Whether a heartbeat is refused when another file has the descriptor's number."""
    fd = int(os.environ["DLAUNCH_HEARTBEAT_FD"])
    keep = os.dup(fd)
    with open("other", "wb") as other:
        os.dup2(other.fileno(), fd)
        time.sleep(0.11)
        sent = dlaunch.heartbeat()
    os.dup2(keep, fd)
    return not sent and os.path.getsize("other") == 0

if "DLAUNCH_ROUND" not in os.environ:
    sys.exit(dlaunch.heartbeat())
assert dlaunch.heartbeat() and reused()
rank = int(os.environ["RANK"])
for i in range(1000000):
    dlaunch.heartbeat()
    if rank == 1 and i == 20:
        subprocess.run(["sleep", "1000"])
    time.sleep(0.02)
P
"$python" beats.py || fail 'a heartbeat counts outside of dlaunch'
run dlaunch --nproc 2 --hang-timeout 3s "$python" beats.py
expect_code 137; expect_err 'rank 1 .* failed first: it hung'; expect_err 'rank 1 has sent no heartbeat'

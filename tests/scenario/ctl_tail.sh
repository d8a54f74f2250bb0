# dlaunchctl tail: the last lines of one worker, those that come until its last word, and those of the process that
# takes its place. A reader that does not read holds up nobody.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp"
cat >talk.py <<'P'
import os, sys, time
rank, round = os.environ["RANK"], os.environ["DLAUNCH_ROUND"]
for i in range(20): print(f"rank {rank} round {round} line {i}", flush=True)
print("careful", file=sys.stderr, flush=True)
step = 0
while not os.path.exists(f"enough.{rank}.{round}"):
    step += 1
    print(f"step {step} of rank {rank}", flush=True)
    if step == 1: open(f"up.{rank}.{round}", "w").close()
    time.sleep(0.01)
print("the last word, without a newline", end="", flush=True)
sys.exit(3 if round == "1" and rank == "1" else 0)
P
dlaunch --nproc 2 --max-restarts 1 --output files --log-dir logs python3 talk.py >job.out 2>job.err </dev/null & job=$!; started+=("$job")
wait_until test -e up.1.1 -a -e up.0.1 || fail "no start: $(cat job.err)"
run dlaunchctl tail 7; expect_code 1; expect_err 'there is no rank 7: the job has 2 workers'
has_step() { run dlaunchctl tail 1 -n 1000 && grep -q '^step 1 of rank 1$' out && grep -q '^careful$' err; }
wait_until has_step || fail "not all lines: $(cat out err)"
expect_code 0
expect_out '^rank 1 round 1 line 0$'; expect_out '^step 1 of rank 1$'; expect_err '^careful$'
grep -q 'rank 0' out && fail "lines of another rank: $(cat out)"
run dlaunchctl tail 1 -n 3; [ "$(cat out err | grep -c .)" = 3 ] || fail "not three lines: $(cat out err)"
run dlaunchctl tail 0 -n 0; [ ! -s out ] || fail "lines: $(cat out)"

dlaunchctl tail 1 -n 2 --follow >follow.out 2>follow.err & follower=$!; started+=("$follower")
wait_until grep -q 'step [0-9]* of rank 1' follow.out || fail "nothing comes: $(cat follow.err)"
# One that does not read: a full pipe.
mkfifo pipe; dlaunchctl tail 0 --follow >pipe 2>/dev/null & deaf=$!; started+=("$deaf")
exec 9<pipe; kill -STOP "$deaf"
touch enough.1.1
wait_until test -e up.1.2 -a -e up.0.2 || fail "no second round: $(cat job.err)"
wait_until grep -q 'rank 1 round 2 line 19' follow.out || fail "not the lines of the next process: $(tail -5 follow.out)"
touch enough.0.2 enough.1.2
wait_until eval '! alive $job' || fail "the job waits for a reader"
wait "$job"; code=$?; expect_code 0
wait "$follower"; code=$?; expect_code 0
exec 9<&-; kill -9 "$deaf"; wait "$deaf" 2>/dev/null
[ "$(grep -c '^the last word, without a newline$' follow.out)" = 2 ] || fail "not both last words: $(tail -5 follow.out)"
[ "$(tail -1 follow.out)" = 'the last word, without a newline' ] || fail "something after the last word: $(tail -5 follow.out)"
# Each line once, and none is missing.
python3 - <<'P' || fail "lines of round 2 are wrong: $(cat follow.out)"
lines = open("follow.out").read().split("rank 1 round 2 line 19\n")[1].splitlines()
assert lines[:-1] == [f"step {i + 1} of rank 1" for i in range(len(lines) - 1)], lines
P
grep -q 'are missing' follow.err && fail "$(cat follow.err)"

# Faster than anybody reads: what is missing is counted, and the end comes.
dlaunch --nproc 1 --output files --log-dir logs2 python3 -c '
import os, time
while not os.path.exists("seen"): time.sleep(0.01)
for i in range(400000): print("fast", i)
print("end")' >/dev/null 2>&1 & job=$!; started+=("$job")
wait_until eval 'dlaunchctl status 2>/dev/null | grep -q running' || fail "no job"
dlaunchctl tail 0 -f >fast.out 2>fast.err & follower=$!; started+=("$follower")
# The follower's first connection asks for the job's state. dlaunch answers the status below after it.
wait_until connected "$follower" && dlaunchctl status >status && wait_until connected "$follower" || fail "tail does not ask: $(cat fast.err)"
touch seen; wait "$job"; code=$?; expect_code 0
wait "$follower"; code=$?; expect_code 0
grep -q 'came too fast and are missing' fast.err || [ "$(grep -c fast fast.out)" = 400000 ] || fail "lines are missing, and nobody says it"
[ "$(tail -1 fast.out)" = end ] || fail "no end: $(tail -3 fast.out fast.err)"
run dlaunch --nproc 1 --output raw sh -c 'dlaunchctl tail 0'; expect_err 'does not pass through dlaunch'

# A worker that needs longer than 5 s to end after SIGKILL. A job that goes on waits for it, and warns once. A job that
# ends does not wait.
source "$SOURCE/tests/scenario/common.sh"
export TMPDIR="$tmp"

# holds PID: a tracer that does not let the process end as long as the tracer lives.
cat >holds.py <<'E2'
import ctypes, os, sys, time

ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_CONT, PTRACE_SEIZE, PTRACE_O_TRACEEXIT, PTRACE_EVENT_EXIT, WALL = 7, 0x4206, 0x40, 6, 0x40000000
pid = int(sys.argv[1])
if ptrace(PTRACE_SEIZE, pid, None, PTRACE_O_TRACEEXIT) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
open("held", "w").close()
while True:
    status = os.waitpid(pid, WALL)[1]
    if status >> 16 == PTRACE_EVENT_EXIT:
        break
    ptrace(PTRACE_CONT, pid, None, os.WSTOPSIG(status) if status >> 16 == 0 else 0)
time.sleep(300)
E2
# Rank 1 ignores SIGTERM. Once the tracer holds it, rank 0 fails.
cat >worker.sh <<'E2'
[ "$DLAUNCH_ROUND" = 1 ] || exit 0
if [ "$RANK" = 0 ]; then until [ -e held ]; do sleep 0.05; done; exit 3; fi
trap '' TERM
echo $$ >pid.new && mv pid.new pid
exec sleep 1000
E2

# start OPTIONS…: the job, whose rank 1 is held.
start() {
  rm -f pid held
  dlaunch --nproc 2 --grace 0.3s "$@" bash worker.sh >out 2>err </dev/null & job=$!; started+=("$job")
  wait_until [ -e pid ] || fail "rank 1 does not start"
  worker=$(cat pid)
  wait_until grep -q sleep "/proc/$worker/comm" || fail "rank 1 does not sleep"
  python3 holds.py "$worker" 2>trace.err & tracer=$!; started+=("$tracer")
  held_or_refused() { [ -e held ] || ! alive "$tracer"; }
  wait_until held_or_refused
  [ -e held ] || skip "the system does not allow tracing: $(cat trace.err)"
}
release() { kill -KILL "$tracer"; wait "$tracer" 2>/dev/null; }

start --max-restarts 1
wait_until grep -q 'has not ended' err || fail "no warning"
expect_err "rank 1 \(pid $worker on [^ ]+\) has not ended 5 s after SIGKILL, because of a debugger that holds it: dlaunch waits up to 55 s longer for its end"
"$BUILD/cli/ctl/dlaunchctl" status >status 2>&1
grep -q 'rank 1 to end' status || fail "the status does not say what the job waits for: $(cat status)"
release
wait "$job"; code=$?; expect_code 0
[ "$(grep -c 'has not ended' err)" = 1 ] || fail "it warns more than once"

start
t0=$(now_ms); wait "$job"; code=$?; ms=$(($(now_ms) - t0)); expect_code 3; expect_under 40000
expect_err 'rank 1 did not die of SIGKILL'
grep -q 'has not ended' err && fail "a job that ends waits"
alive "$worker" || fail "the worker was not held"
release
wait_until eval '! alive "$worker"' || fail "the worker stays"

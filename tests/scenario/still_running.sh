# A worker that has printed a traceback and still runs: dlaunch warns about it, says which ranks wait for it,
# and names it in the report of the later end of the job. It does not warn about a worker that has caught the
# exception and continues.
source "$SOURCE/tests/scenario/common.sh"

cat > ring.py <<'P'
import ctypes, os, sys, threading, time, traceback
rank = int(os.environ["RANK"])
ring = ctypes.CDLL("libdlring.so.0")
comm = ctypes.c_void_p()
def join():
    assert ring.dl_init(None, None, ctypes.byref(comm)) == 0
    ring.dl_barrier(comm)
def caught():
    try: raise ValueError("caught by the program")
    except ValueError: traceback.print_exc()
P
cat > thread.py <<'P'
from ring import *
if rank == 1: threading.Thread(target=time.sleep, args=(1000,)).start()
join()
if rank == 1: raise ValueError("bad batch")
ring.dl_barrier(comm)
P
cat > hangs.py <<'P'
from ring import *
join()
try:
    if rank == 1: raise ValueError("bad batch")
    ring.dl_barrier(comm)
except ValueError:
    traceback.print_exc()
    threading.Event().wait()
P
# Two jobs whose worker continues, and one job whose worker does not, at the same time.
cat > goes_on.py <<'P'
from ring import *
if sys.argv[1] == "collectives":
    join()
    if rank == 1: caught()
    for i in range(160):
        assert ring.dl_barrier(comm) == 0
        time.sleep(0.1)
else:
    if rank == 1: caught()
    for i in range(16):
        print("step", i, flush=True)
        time.sleep(1)
P
dlaunch --nproc 2 python3 goes_on.py prints >prints.out 2>prints.err </dev/null & prints=$!
dlaunch --nproc 2 python3 goes_on.py collectives >collectives.out 2>collectives.err </dev/null & collectives=$!
started+=($prints $collectives)
run dlaunch --nproc 3 --timeout 29s --grace 1s --error-file report.json python3 thread.py
expect_code 75
expect_err '^dlaunch: warning: rank 1 printed a traceback [12][0-9][0-9.]* s ago and still runs; ranks 0, 2 wait; '
expect_err "^dlaunch:   likely cause: rank 1 \\(pid [0-9]+ on host .*\\) had printed a traceback [12][0-9][0-9.]* s before and still ran\$"
[ "$(grep -c 'ValueError: bad batch' err)" = 2 ] || fail "the report does not quote the traceback"
python3 - <<'P' || fail "report.json: $(cat report.json)"
import json
r = json.load(open("report.json"))
assert r["likely_cause"] == [1], r
worker = next(w for w in r["others"] if w["rank"] == 1)
assert worker["silent_since_traceback_s"] > 10 and worker["traceback"][-1] == "ValueError: bad batch", worker
P
for job in prints collectives; do
  wait "${!job}" || fail "$job: $(cat $job.err)"
  grep -q 'caught by the program' $job.err || fail "$job: no traceback"
  grep 'still runs' $job.err && fail "$job: a worker that goes on was warned of"
done

# dlaunch kills a worker that hangs in an except block, and the report has the traceback from before.
run dlaunch --nproc 2 --hang-timeout 5s python3 hangs.py
expect_code 137; expect_err 'rank 1 .* failed first: it hung'; expect_err 'likely cause: it had printed a traceback [0-9.]+ s before'
# The report after a signal has the traceback, too.
dlaunch --nproc 2 python3 hangs.py >out 2>err </dev/null & job=$!; started+=($job)
wait_until grep -q 'bad batch' err || fail "no traceback"
wait_until grep -q 'still runs; rank 0 waits' err || fail "no warning"
kill -TERM "$job"; wait "$job"; code=$?; expect_code 143
expect_err 'ended by SIGTERM'; expect_err 'likely cause: rank 1 '

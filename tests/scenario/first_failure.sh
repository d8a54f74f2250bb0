# The first failure ends the job at once, with its own exit code, and the report names it.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 4 --grace 50s sh -c '[ $RANK = 2 ] && exit 7; sleep 60'
expect_code 7; expect_under 30000
expect_err 'rank 2 \(pid [0-9]+ on .*\) failed first: exit code 7'
expect_err 'the other 3 workers were sent SIGTERM'

run dlaunch --nproc 4 --grace 50s sh -c '[ $RANK = 2 ] && kill -SEGV $$; sleep 60'
expect_code 139; expect_under 30000
expect_err 'rank 2 .* failed first: killed by SIGSEGV'

# A worker that ends well and early does not end the job.
run dlaunch --nproc 2 bash -c '[ $RANK = 0 ] && exit 0; read -rt 0.3 <> <(:); echo done'
expect_code 0; expect_out '^\[1\] done$'

# Rank 0 fails with an error that looks like a lost connection. Rank 1 only logs an exception, long before or
# because of dlaunch's SIGTERM, and is not the cause.
cat > handled.py <<'P'
import logging, os, signal, time
if os.environ["RANK"] == "0":
    while not os.path.exists("ready"): time.sleep(0.01)
    while os.environ["HOW"] == "logged" and "KeyError" not in open("err").read(): time.sleep(0.01)
    time.sleep(2.5)
    raise ConnectionResetError(104, "Connection reset by peer")
def stop(*_): raise KeyError("because of the signal")
if os.environ["HOW"] == "told": signal.signal(signal.SIGTERM, stop)
try: {}["missing"]
except KeyError:
    if os.environ["HOW"] == "logged": logging.exception("going on")
open("ready", "w").close()
while True: time.sleep(0.1)
P
for how in logged told; do
  rm -f ready; HOW=$how run dlaunch --nproc 2 python3 handled.py
  expect_code 1; expect_err 'rank 0 \(.*\) failed first: exit code 1'
  expect_err '^dlaunch:     ConnectionResetError'
  expect_err 'its error is about a lost connection: rank 1, still running then, may be the cause'
done

# Rank 1's exception is the cause, although rank 0, which lost its connection because of it, ended before. This
# also holds if the traceback is longer than the kept part of stderr, or if much output follows it.
cat > dying.py <<'P'
import atexit, os, sys, time, traceback
if os.environ["RANK"] == "0":
    open("line").read()
    try: raise RuntimeError("Connection closed by peer")
    except RuntimeError: traceback.print_exc()
    os._exit(1)  # at once: dlaunch takes a traceback for the cause only if it is at most 2 s old
line = open("line", "w")
@atexit.register
def end():
    for i in range(30 if os.environ["HOW"] == "noisy" else 0): print("uploading", i, file=sys.stderr)
    line.close()
    while True: time.sleep(0.1)
depth = 40 if os.environ["HOW"] == "deep" else 1
exec("def f0(): raise ValueError('bad batch')")
for i in range(depth): exec(f"def f{i + 1}(): f{i}()")
globals()[f"f{depth}"]()
P
for how in deep noisy; do
  for try in 1 2 3; do  # on a busy machine rank 0 may take longer than these 2 s
    rm -f line; mkfifo line; HOW=$how run dlaunch --nproc 2 python3 dying.py
    ! grep -q 'rank 1 .* failed first' err || break
  done
  expect_err 'rank 1 \(.*\) failed first: killed by SIGTERM'
  expect_err 'it was failing already when dlaunch sent it SIGTERM'
  expect_err '^dlaunch:     ValueError: bad batch$'
  expect_err 'consequences: rank 0 lost a connection'
done

# If a rank lost its connection to a rank that had ended well, the report says so.
cat > early.py <<'P'
import os, sys
if os.environ["RANK"] == "1":
    open("line", "w").close(); sys.exit(0)
open("line").read()
while os.path.exists("/proc/" + open("pid").read().strip()): pass
raise ConnectionResetError(104, "Connection reset by peer")
P
rm -f line; mkfifo line; run dlaunch --nproc 2 sh -c '[ $RANK = 1 ] && echo $$ > pid; exec python3 early.py'
expect_code 1
expect_err 'its error is about a lost connection: rank 1 had ended with exit code 0, [0-9.]+ .?s before'

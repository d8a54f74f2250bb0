# The report of a Python exception. It shows the first and the last exception of a chain. On a terminal it
# does not repeat lines that stand just above.
source "$SOURCE/tests/scenario/common.sh"

cat > chain.py <<'P'
import os, sys, time
if os.environ["RANK"] != "1": time.sleep(1000)
def load(depth):
    if depth: load(depth - 1)
    raise ValueError("bad batch")
def clean_up(depth):
    if depth: clean_up(depth - 1)
    {}["handle"]
try:
    try: load(3)
    finally: clean_up(3)
except KeyError as e:
    if len(sys.argv) > 1: raise RuntimeError("the third") from e
    raise
P
run dlaunch --nproc 3 python3 chain.py
expect_code 1; expect_err 'rank 1 .* failed first: exit code 1'
expect_err '^dlaunch:   its first exception, which a later one hides:$'; expect_err '^dlaunch:     ValueError: bad batch$'
expect_err '^dlaunch:   its last exception, raised while it handled that one or because of it:$'
expect_err "^dlaunch:     KeyError: 'handle'\$"
run dlaunch --nproc 3 --error-file report.json python3 chain.py more
expect_code 1; expect_err 'ValueError: bad batch$'; expect_err 'its last exception, after 1 other in between:$'
expect_err '^dlaunch:     RuntimeError: the third$'
python3 - <<'P' || fail "report.json: $(cat report.json)"
import json
cause = json.load(open("report.json"))["root_cause"]
assert cause["traceback"][-1] == "RuntimeError: the third", cause
assert cause["first_traceback"][-1] == "ValueError: bad batch" and cause["exceptions_between"] == 1, cause
P

# An exception group, notes, and a program with a syntax error.
cat > group.py <<'P'
import sys
if sys.version_info >= (3, 11):
    raise ExceptionGroup("both failed", [ValueError("left"), TypeError("right")])
print("  | ExceptionGroup: both failed (2 sub-exceptions)\n    | ValueError: left\n    | TypeError: right", file=sys.stderr); sys.exit(1)
P
run dlaunch --nproc 1 python3 group.py
expect_code 1; expect_err 'dlaunch: .*ExceptionGroup: both failed'; expect_err 'dlaunch: .*ValueError: left'; expect_err 'dlaunch: .*TypeError: right'
echo 'def f(:' > broken.py
run dlaunch --nproc 1 python3 broken.py
expect_code 1; expect_err '^dlaunch:     SyntaxError: invalid syntax'

# On a terminal lines of the failed rank that stand just above the report appear once. In a file they
# appear again in the report, which is then complete.
on_terminal() { run python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$@"; }
say='[ $RANK = 1 ] || sleep 1000; echo "disk on fire" >&2; exit 9'
on_terminal dlaunch --nproc 2 sh -c "$say"
expect_code 9
[ "$(grep -c 'disk on fire' out)" = 1 ] || fail "said twice on a terminal: $(cat -v out)"
expect_out 'its stderr ends with the lines above'
run dlaunch --nproc 2 sh -c "$say"
expect_code 9; [ "$(grep -c 'disk on fire' err)" = 2 ] || fail "the report in a file lacks the cause"
# If another rank has printed lines since, the report quotes them.
on_terminal dlaunch --nproc 2 bash -c "$never"'[ $RANK = 0 ] && { trap "echo good bye >&2; exit 0" TERM; touch ready; while :; do read -rt 1 -u 9; done; }
  until [ -e ready ]; do sleep 0.01; done; '"$say"
expect_code 9; expect_out 'good bye'; expect_out 'last lines of its stderr'
[ "$(grep -c 'disk on fire' out)" = 2 ] || fail "the report lacks what stands further up: $(cat -v out)"

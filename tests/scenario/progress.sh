# How far a job is: one row at the bottom of a terminal, which goes away; lines in a pipe; the same numbers in
# dlaunchctl and the metrics.
source "$SOURCE/tests/scenario/common.sh"
unset NO_COLOR DLAUNCH_PROGRESS DLAUNCH_PROGRESS_BARS; export TERM=xterm SCREEN_COLUMNS=250
screen=$SOURCE/tests/scenario/on_screen.py
# At the end of on_screen.py's output; before "--" stands what it was to look for.
at_end() { sed '1,/^--$/d' out; }

# A worker whose rank 0 reports steps until the file `seen` is there.
cat >steps.sh <<'W'
i=0; exec 9<> <(:)
until [ -e seen ]; do
  i=$((i + 1)); [ "$RANK" != 0 ] || echo "$i/1000 loss=0.5" >&"$DLAUNCH_HEARTBEAT_FD"
  read -rt 0.2 -u 9
done
true
W

# In a pipe: no line before 30 s have passed. It runs beside the rest.
mkdir plain; (cd plain && exec dlaunch --nproc 2 --job-id plain bash ../steps.sh >../plain.out 2>../plain.err </dev/null) &
plain=$!; started+=("$plain"); began=$(now_ms)

# A start that takes less than a second shows nothing.
for try in 1 2 3 4 5; do  # on a busy machine a start may be slow
  run python3 "$screen" dlaunch --nproc 2 true; expect_code 0
  grep -q dlaunch out || break
done
[ "$ms" -ge 1000 ] || ! grep -q dlaunch out || fail "a row for a quick start: $(cat out)"

# Steps in one row, and nothing of it is left.
echo '^dlaunch: step [0-9]+/1000  [0-9]+%  [0-9.]+ steps/s  ETA [0-9ms]+  loss 0.5$' >look
run python3 "$screen" dlaunch --nproc 2 sh -c "[ \$RANK = 0 ] || echo a line; exec bash steps.sh"
expect_code 0; grep -q '^\[1\] a line' out || fail "no line of a worker: $(cat out)"
at_end | grep -q 'dlaunch:' && fail "a row is left: $(at_end)"

# A bar of the same rank stands in its place.
rm seen; echo '^\[0\] bar 1' >look
run python3 "$screen" dlaunch --nproc 1 bash -c 'exec 9<> <(:); echo "5/9" >&$DLAUNCH_HEARTBEAT_FD
  read -rt 2.5 -u 9; printf "\rbar 1" >&2; . ./steps.sh; printf "\rbar 2\n" >&2'
expect_code 0; sed '/^--$/,$d' out | grep -q 'dlaunch:' && fail "a row beside a bar: $(cat out)"
rm -f seen; echo 'word' >look
run python3 "$screen" dlaunch --nproc 1 --progress none bash -c 'exec 9<> <(:); echo 5/9 >&$DLAUNCH_HEARTBEAT_FD
  read -rt 2.5 -u 9; echo word; . ./steps.sh'
expect_code 0; grep -q 'dlaunch:' out && fail "a row in spite of --progress none: $(cat out)"

# A restart: a rank that fails is started again after a pause.
rm -f seen; echo '^dlaunch: round [0-9]: restarting, 1 of 2 workers, waiting for rank 1 to be started again$' >look
run python3 "$screen" dlaunch --nproc 2 --max-restarts 5 --restart-scope worker --same-failure-limit off bash -c '
  exec 9<> <(:); [ "$RANK" = 0 ] && . ./steps.sh; [ -e seen ] || { read -rt 1.5 -u 9; exit 3; }'
[ -e seen ] || fail "no row about a restart: $(cat out)"

# The row does not stay when the agent is lost.
rm -f seen; echo '^dlaunch: step' >look
python3 "$screen" dlaunch --nproc 1 bash -c 'echo $PPID >agent; exec 9<> <(:)
  while echo 5/9 >&$DLAUNCH_HEARTBEAT_FD; do read -rt 0.1 -u 9; done' >killed & viewer=$!; started+=("$viewer")
wait_until test -e seen || fail "no row before the agent's end: $(cat killed)"
kill -9 "$(cat agent)"; wait $viewer; [ $? = 70 ] || fail "a lost agent: $(cat killed)"
sed '1,/^--$/d' killed | grep -q '^dlaunch: step' && fail "a row is left behind a lost agent: $(cat killed)"
grep -q "^dlaunch: dlaunch's agent was lost" killed || fail "a lost agent: $(cat killed)"

# ^Z leaves the last row, and draws nothing on the shell's prompt; neither does a job in the background.
cat >suspend.py <<'P'
import re, sys
import shell_on_terminal as shell
def until(what):
    shell.until(what, lambda: re.search(what, shell.seen))
    shell.seen = shell.seen[re.search(what, shell.seen).end():]
def quiet(seconds, when):
    shell.read_on(seconds)
    if b"dlaunch: step" in shell.seen or b"\x1b[J" in shell.seen: sys.exit(f"it draws {when}; seen: {shell.seen}")
until(b"prompt> ")
shell.type_in(b"dlaunch --nproc 1 bash steps.sh\n")
until(b"\rdlaunch: step")
shell.type_in(b"\x1a")
until(b"Stopped[^\n]*\n.*prompt> ")
quiet(2, "while it is stopped")
shell.type_in(b"bg\n")
until(b"prompt> ")
quiet(2, "in the background")
shell.type_in(b"fg\n")
until(b"dlaunch: step")
shell.type_in(b"\x03")
until(b"prompt> ")
shell.leave()
P
rm -f seen; PYTHONPATH=$SOURCE/tests/scenario run python3 -B suspend.py; expect_code 0

# dlaunchctl has the same numbers.
"$BUILD/cli/ctl/dlaunchctl" --job plain status --json >status || fail "no status"
python3 - <<'P' || fail "the status: $(cat status)"
import json
progress = json.load(open("status"))["progress"]
assert progress["rank"] == 0 and progress["step"] > 1 and progress["total"] == 1000, progress
assert progress["values"] == {"loss": 0.5} and progress["left_s"] > 0 and 0.1 < progress["steps_per_s"] < 20, progress
P
"$BUILD/cli/ctl/dlaunchctl" --job plain status | grep -qE '^step [0-9]+/1000  .* ago$' || fail "status: $("$BUILD/cli/ctl/dlaunchctl" --job plain status)"
while [ $(($(now_ms) - began)) -lt 28000 ]; do [ -s plain.err ] && fail "a line before its time: $(cat plain.err)"; read -rt 0.2 <> <(:); done
wait_until grep -qE '^dlaunch: step [0-9]+/1000  .*ETA .*  loss 0.5$' plain.err || fail "no line after 30 s"
touch plain/seen; wait "$plain" || fail "exit code $?"
[ "$(wc -l <plain.err)" -le $((($(now_ms) - began) / 30000 + 1)) ] || fail "more lines: $(cat plain.err)"

# The library: a call costs less than a microsecond when no report is due.
run dlaunch --nproc 1 "$BUILD/tests/support/report_cost"
expect_code 0; expect_out '[0-9]+ ns a call'
run "$BUILD/tests/support/report_cost"
[ "$code" = 1 ] || fail "reports are read outside of dlaunch"

# The start of a program with libdlring, and Python's calls.
need_package
export PYTHONPATH=$BUILD/python
python3 -c 'import dlaunch' 2>/dev/null || skip 'the rest: python3 cannot load the package'
cat >joins.py <<'P'
import os, sys, time
import dlaunch
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.02)
if os.environ["RANK"] == "1": wait_for("seen")
comm = dlaunch.init()
P
rm -f seen; echo '^dlaunch: rendezvous: 1 of 2 ranks, waiting for rank 1$' >look
run python3 "$screen" dlaunch --nproc 2 python3 joins.py
expect_code 0; at_end | grep -q 'dlaunch:' && fail "a row is left: $(at_end)"
echo 'wait_for("seen2"); comm.barrier()' >>joins.py
touch seen; rm -f seen2; echo '^dlaunch: round 1: 2 workers, before the first collective$' >look
(wait_until test ! -e look && touch seen2) &
run python3 "$screen" dlaunch --nproc 2 python3 joins.py
expect_code 0

cat >calls.py <<'P'
import sys, timeit
import dlaunch
class Loss:
    """A number that costs time: it counts how often it was asked for."""
    asked = 0
    def __float__(self):
        Loss.asked += 1
        return 0.5
inside = "DLAUNCH_ROUND" in __import__("os").environ
assert dlaunch.progress(1, 1000, loss=Loss()) is inside
assert dlaunch.progress(2, total=1000, loss=Loss()) is inside and Loss.asked == inside
assert dlaunch.progress(step=1000, total=1000, loss=Loss()) is inside and Loss.asked == 2 * inside  # the last one
for wrong in [((), {}), ((1.5,), {}), ((1, 2, 3), {}), ((1,), {"step": 2}), ((1, "x"), {})]:
    try:
        dlaunch.progress(*wrong[0], **wrong[1])
        sys.exit(f"no TypeError: {wrong}")
    except TypeError:
        pass
best = min(timeit.repeat(lambda: dlaunch.progress(1, 1000, loss=0.5), number=10000, repeat=20)) / 10000
print(f"{1e9 * best:.0f} ns a call")
bare = min(timeit.repeat(lambda: dict(loss=0.5), number=10000, repeat=20)) / 10000  # on a slow machine any call takes longer
assert best < max(1e-6, 10 * bare), (best, bare)
P
run python3 calls.py; expect_code 0
run dlaunch --nproc 1 python3 calls.py; expect_code 0; expect_out 'ns a call'

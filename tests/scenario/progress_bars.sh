# Progress bars. On a terminal dlaunch draws one in place. A pipe or file gets the last state of each bar.
# Log files have every byte.
source "$SOURCE/tests/scenario/common.sh"
unset NO_COLOR DLAUNCH_PROGRESS_BARS; export TERM=xterm

on_terminal=$SOURCE/tests/scenario/on_screen.py
# look_for REGEX: by this line the worker asks the terminal to report its rows once the pattern is there.
cat > bars.sh <<'W'
draw() { printf '\r%s: %d/9 |████      |' "bar of $RANK" "$1" >&2; }
await() { until [ -e "$1" ]; do read -rt 0.02 -u 9; done; }
exec 9<> <(:)
[ "$RANK" = 0 ] || await bars.0
draw 1
touch "bars.$RANK"
await bars.1
if [ "$RANK" = 1 ]; then echo a line of rank 1; draw 2; fi
if [ "$RANK" = 0 ]; then printf '%s\n' '\[0\] bar of 0: 1/9' ${ALSO:+"$ALSO"} >.look; mv .look look; fi
await seen
draw 9; echo >&2
W
run python3 "$on_terminal" dlaunch --nproc 2 bash bars.sh
expect_code 0
sed '/^--$/,$d' out >while; sed '1,/^--$/d' out >end
[ "$(tail -n 1 while)" = "[0] bar of 0: 1/9 |████      |" ] || fail "the live bar: $(cat while)"
grep -q 'bar of 1' while && fail "rank 1's bar before its end: $(cat while)"
[ "$(sort end)" = "$(printf '\n[0] bar of 0: 9/9 |████      |\n[1] a line of rank 1\n[1] bar of 1: 9/9 |████      |')" ] ||
  fail "at the end: $(cat end)"

rm -f bars.? seen
ALSO='\[1\] bar of 1: [12]/9' run python3 "$on_terminal" dlaunch --nproc 2 --progress-bars all bash bars.sh
expect_code 0
sed '/^--$/,$d' out >while
[ "$(grep -c '^\[[01]\] bar of' while)" = 2 ] || fail "not the bars of both: $(cat while)"

# A terminal that cannot move its cursor gets the same output as a pipe.
rm -f bars.? seen; touch seen
TERM=dumb run python3 "$on_terminal" dlaunch --nproc 2 bash bars.sh
expect_code 0
[ "$(grep -c 'bar of' out)" = 2 ] || fail "on a dumb terminal: $(cat out)"

# A pipe gets the last state of each bar, also with time stamps and with merged output.
for options in "" --timestamps "--output merged" "--log-dir logs"; do
  rm -f bars.?
  run dlaunch --nproc 2 $options bash bars.sh
  expect_code 0
  [ "$(grep -c 'bar of' err)" = 2 ] || fail "$options: $(cat err)"
  expect_err '(^| )\[1\] bar of 1: 9/9 \|████      \|$'
done
[ "$(tr '\r' '\n' <logs/1/1/stderr | grep -c '^bar of 1')" = 3 ] || fail "the log file: $(cat -v logs/1/1/stderr)"
run dlaunch --nproc 1 --progress-bars lines bash bars.sh
expect_code 0; expect_err '^\[0\] bar of 0: 1/9'

/usr/bin/env python3 -c 'import tqdm' 2>/dev/null || export PATH="/usr/bin:$PATH"
python3 -c 'import tqdm' 2>/dev/null || skip "bars of tqdm: it is not installed (python3-tqdm)"
cat > nested.py <<'P'
import os, sys, time
from tqdm import tqdm
rank = os.environ["RANK"]
with tqdm(total=3, desc="outer " + rank, mininterval=0) as outer:
    for epoch in range(3):
        for step in tqdm(range(50), desc="inner " + rank, leave=False, mininterval=0):
            if (rank, epoch, step) == ("0", 1, 40):
                open(".look", "w").write("outer 0: +33%\ninner 0: +[0-9]+%\n")
                os.rename(".look", "look")
                while not os.path.exists("seen"): time.sleep(0.02)
        tqdm.write(f"epoch {epoch} of {rank}", file=sys.stderr)
        time.sleep(0.1)  # a faster bar has a rate of four digits, which exceeds the terminal's 60 columns
        outer.update()
P
rm -f seen
run python3 "$on_terminal" dlaunch --nproc 2 python3 nested.py
expect_code 0
sed '/^--$/,$d' out >while; sed '1,/^--$/d' out >end
grep -q '^\[0\] outer 0:  33%' while && tail -n 1 while | grep -qE '^\[0\] inner 0: +[0-9]+%' ||
  fail "the two live bars of rank 0: $(cat while)"
for rank in 0 1; do
  [ "$(grep -c "^\[$rank\] outer $rank: 100%" end)" = 1 ] || fail "the outer bar of $rank at the end: $(cat end)"
  [ "$(grep -c "^\[$rank\] epoch [012] of $rank$" end)" = 3 ] || fail "lines above the bars: $(cat end)"
done
[ "$(grep -c . end)" = 8 ] || fail "more is left on the terminal: $(cat end)"
run dlaunch --nproc 2 python3 nested.py
expect_code 0
[ "$(grep -c 'outer' err)" = 2 ] && [ "$(wc -l <err)" = 8 ] || fail "in a pipe: $(cat err)"

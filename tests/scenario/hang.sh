# A worker for which the others wait is named and replaced; one that was stopped for a moment, or
# that somebody debugs, is not.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/rounds_worker

run dlaunch --nproc 3 --hang-timeout 1s "$worker" --steps 1000 --hang 2
expect_code 137; expect_under 20000
expect_err 'rank 2 .* failed first: it hung'; expect_err 'stacks of rank 2'
grep -q 'built without libdw' err || { expect_err 'hang_forever'; expect_err 'stacks of rank 0'; }
expect_err 'rank 2 has not entered all_reduce #[0-9]+, where rank 0-1 are waiting'

run dlaunch --nproc 3 --hang-timeout 1s --max-restarts 1 "$worker" --steps 300 --step-ms 5 --hang 1
expect_code 0; expect_err 'rank 1 .* it hung, .*; starting it again: round 2'
expect_out '^\[[02]\] in round 2 as [02] of 3, pid'

start() {
  rm -f out err  # of the run before
  dlaunch "$@" >out 2>err & job=$!
  started+=("$job")
  wait_until 20 grep -q 'in round 1 as 1' out || fail "did not start: $(cat err)"
  pid=$(sed -n 's/^\[1\] in round 1 as 1 of [0-9], pid \([0-9]*\)$/\1/p' out)
}
# Stopped for ever.
start --nproc 3 --hang-timeout 1s --max-restarts 1 "$worker" --steps 400 --step-ms 5
kill -STOP "$pid"
wait_until 5 grep -q 'rank 1 is stopped' err || fail "nobody noticed that rank 1 was stopped"
wait "$job"; code=$?; expect_code 0; expect_err 'starting it again: round 2'

# For a moment.
start --nproc 3 --hang-timeout 60s "$worker" --steps 400 --step-ms 5
kill -STOP "$pid"
wait_until 5 grep -q 'rank 1 is stopped' err || fail "nobody noticed that rank 1 was stopped"
kill -CONT "$pid"
wait "$job"; code=$?; expect_code 0
[ "$(grep -c . err)" = 2 ] || fail "more than that it stopped and went on: $(cat err)"

# Under a debugger.
command -v gdb >/dev/null || exit 0
start --nproc 3 --hang-timeout 1s "$worker" --steps 400 --step-ms 5
gdb -q -batch -p "$pid" -ex 'shell until [ -e seen ]; do read -rt 0.05 <> <(:); done' >/dev/null 2>&1 & debugger=$!
started+=("$debugger")
wait_until 10 grep -q 'rank 1 is traced' err || fail "nobody noticed the debugger: $(cat err)"
read -rt 3 <> <(:)  # longer than the time-out: nothing must happen
touch seen; wait "$debugger"
wait "$job"; code=$?; expect_code 0

# dlaunch reports a stopped worker within milliseconds. If the worker stays stopped, dlaunch shows its
# stacks and replaces it at the limit, and the result is that of one undisturbed process. A worker that
# was stopped for a second causes only a warning. dlaunch does not touch a worker under a debugger.
source "$SOURCE/tests/scenario/common.sh"
worker=("$BUILD/tests/support/elastic_worker" --size 20000)

# expect_result ROUNDS: the workers end after this many rounds, and three ranks have the result of one
# process.
expect_result() {
  local steps result
  touch enough; wait "$job"; code=$?; expect_code 0
  steps=$(sed -nE 's/.* of 3: step ([0-9]+), .*/\1/p' out | head -n 1)
  result=$("${worker[@]}" --steps "$steps" | grep -o "step $steps, result [0-9a-f]*") || fail "no result"
  [ "$(grep -c "of 3: $result" out)" = 3 ] || fail "not the result of one process, three times"
  [ "$(grep -o '^round [0-9]*' log | sort -u | wc -l)" = "$1" ] || { cat log; fail "not in $1 rounds"; }
}
# start ARGS…: starts $job, and waits until rank 1, with the pid $pid, has begun.
start() {
  rm -f out err log enough
  dlaunch --progress none --nproc 3 "$@" "${worker[@]}" --log log --until enough --steps 1000000000 --step-ms 5 >out 2>err </dev/null & job=$!
  started+=("$job")
  wait_until grep -qs 'rank 1 ' log || fail "did not start: $(cat err)"
  pid=$(sed -n 's/^round 1 rank 1 .* pid \([0-9]*\) .*/\1/p' log)
}
# dlaunch reports it at once. script/bench-recovery --ways stop measures the time.
stop() {
  kill -STOP "$pid"
  wait_until 30 grep -q 'rank 1 is stopped' err || fail "nobody noticed that rank 1 was stopped"
}

# Rank 1 stays stopped.
start --hang-timeout 4s --max-restarts 1; stop
wait_until grep -q '^round 2 rank 1 ' log || fail "it was not replaced"
expect_result 2
expect_err 'rank 1 is stopped .*; it is replaced after 4 s'
expect_err "stacks of rank 1 \(pid $pid\)"
grep -q 'built without libdw' err || expect_err ' (main|.*Worker::|.*elastic_worker)'
expect_err 'rank 1 .* failed first: it hung, .*starting it again: round 2'

# Rank 1 is stopped for a second.
start --hang-timeout 60s --max-restarts 1; stop
read -rt 1 <> <(:)
kill -CONT "$pid"
wait_until 30 grep -q 'rank 1 is no longer stopped' err || fail "nobody noticed that it goes on"
expect_result 1
[ "$(grep -c . err)" = 2 ] || fail "more than that it stopped and went on: $(cat err)"

# Rank 1 is under a debugger.
command -v gdb >/dev/null || { echo "without the case under a debugger: gdb is not installed"; exit 0; }
start --hang-timeout 3s --max-restarts 1
SHELL=$BASH gdb -q -batch -p "$pid" -ex 'shell until [ -e seen ]; do read -rt 0.05 <> <(:); done' >/dev/null 2>&1 & debugger=$!
started+=("$debugger")
wait_until grep -q 'rank 1 is traced' err || fail "nobody noticed the debugger: $(cat err)"
read -rt 4 <> <(:)  # longer than the time-out: nothing must happen
touch seen; wait "$debugger"
expect_result 1

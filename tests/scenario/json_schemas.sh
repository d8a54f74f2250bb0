# The JSON of dlaunch, dlaunchctl and dlaunch-bench matches the published schemas, which allow no
# member that they do not describe.
source "$SOURCE/tests/scenario/common.sh"
source "$SOURCE/tests/scenario/valid_json.sh" || exit 1
# report CODE WORDS… -- ARGS…: the job must end with that code, and its report must have those members.
report() {
  local code_wanted=$1 words=(); shift
  while [ "$1" != -- ]; do words+=("$1"); shift; done; shift
  rm -f report.json
  run dlaunch --error-file report.json "$@"
  expect_code "$code_wanted"; valid report.schema.json report.json ${words[@]+"${words[@]}"}
}
# The schemas refuse unknown members.
echo '{"job_id": "x", "unknown": 1}' > wrong.json
"$valid_python" valid.py "$SOURCE/man/schema/report.schema.json" wrong.json 2>/dev/null && fail "the schema takes anything"

report 0 others max_restarts -- --nproc 2 true
report 7 root_cause exit_code stderr_tail -- --nproc 2 sh -c '[ $RANK = 1 ] || sleep 1000; echo no >&2; exit 7'
report 139 signal signal_name core_dumped -- --nproc 2 sh -c 'ulimit -c 0; [ $RANK = 1 ] || sleep 1000; kill -SEGV $$'
report 3 max_restarts_window_s -- --nproc 1 --max-restarts 1/1h --log-dir logs sh -c 'echo $$ >&2; exit 3'
report 127 start_failure -- --nproc 1 ./no-such-program
report 75 summary -- --nproc 2 --timeout 1s sleep 1000
report 137 hung last_operations -- --nproc 2 --hang-timeout 3s "$BUILD/tests/support/rounds_worker" --hang 1
report 137 by_chaos -- --nproc 1 --chaos kill=200ms "$BUILD/tests/support/rounds_worker" --until never
report 1 root_cause program -- -n 1 sleep 1000 : -n 1 false
run dlaunch --error-file usage.json --no-such-option true
expect_code 64; [ ! -e usage.json ] || fail "a refused command line leaves a report"

# dlaunchctl's JSON about a running job.
export TMPDIR=$PWD
ctl=$BUILD/cli/ctl/dlaunchctl
dlaunch --nproc 2 --spares 1 --max-restarts 3/1h --error-file end.json "$BUILD/tests/support/rounds_worker" --until enough >out 2>err </dev/null &
job=$!; started+=($job)
wait_until grep -q 'in round' out || fail "no round"
ask() { "$ctl" "$@" --json || fail "dlaunchctl $*"; }
ask status >status.json; valid status.schema.json status.json workers spares window_s goodput culprit_s
ask top --once >top.json; valid 'status.schema.json*' top.json
ask goodput >goodput.json; valid goodput.schema.json goodput.json costs culprits ranks goodput
ask list >list.json; valid list.schema.json list.json
ask stacks >stacks.json; valid stacks.schema.json stacks.json
kill -TERM "$job"; wait "$job"; code=$?; expect_code 143; valid report.schema.json end.json signal_received max_restarts_window_s

# A rank for which the others wait.
dlaunch --nproc 2 --hang-warning 2s "$BUILD/tests/support/rounds_worker" --hang 1 >out 2>err </dev/null &
job=$!; started+=($job)
has_late_rank() { "$ctl" status --json >status.json && grep -q '"waited_s"' status.json; }
wait_until has_late_rank || fail "no late rank"
valid status.schema.json status.json late ranks waiting text
kill -TERM "$job"; wait "$job"; code=$?; expect_code 143

run dlaunch doctor --json
valid doctor.schema.json out hosts findings

run dlaunch --nproc 2 --output raw dlaunch-bench all_gather -b 1K -n 5 --json
valid bench.schema.json out results
run dlaunch-bench --model 124M --step 350ms --link 100mbit,40ms --json
valid bench.schema.json out predictions advice

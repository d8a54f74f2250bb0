# dlaunch names a worker for which the others wait, prints its stacks and those of a waiting worker, and
# replaces it, whatever it does.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/rounds_worker

run dlaunch --nproc 3 --hang-timeout 3s --error-file error.json "$worker" --steps 1000 --hang 2
expect_code 137; expect_under 60000
expect_err 'rank 2 .* failed first: it hung'; expect_err 'stacks of rank 2'
grep -q 'built without libdw' err || { expect_err 'hang_forever.* at .*rounds_worker.cc:[0-9]+'; expect_err 'stacks of rank 0'; }
expect_err 'rank 2 has not entered all_reduce #[0-9]+, where rank 0-1 are waiting'
# The time of the hang is lost by its failure.
python3 - error.json <<'PY' || fail "the ledger of goodput does not book the hang: $(cat error.json)"
import json, sys
goodput = json.load(open(sys.argv[1]))["goodput"]
worst = goodput["costs"][0]
sys.exit(not (worst["rank"] == 2 and worst["lost_work_s"] >= 3 * 3 and goodput["goodput"] < 0.2))
PY

run dlaunch --nproc 3 --hang-timeout 3s --max-restarts 1 "$worker" --steps 300 --step-ms 5 --hang 1
expect_code 0; expect_err 'rank 1 .* it hung, .*; starting it again: round 2'
expect_out '^\[[02]\] in round 2 as [02] of 3, pid'

# Without --hang-timeout dlaunch still warns about the worker, and says at the end which rank the others waited for.
# Meanwhile dlaunchctl says it.
export TMPDIR=$tmp
dlaunch --nproc 3 --hang-warning 2s --timeout 29s --error-file error.json "$worker" --steps 1000 --hang 2 --how deadlock >out 2>err </dev/null &
job=$!; started+=($job)
ctl_says_late() {
  "$BUILD/cli/ctl/dlaunchctl" top --once >top.out 2>&1
  grep -q 'rank 2 cost most' top.out &&
    grep -qE '^rank 2 has not entered all_reduce #[0-9]+, where rank 0-1 are waiting, for [0-9.]+ s$' top.out
}
wait_until 28 ctl_says_late || fail "dlaunchctl top does not name the late rank: $(cat top.out)"
wait "$job"; code=$?; expect_code 75
told=$(grep -c 'rank 2 has not entered .* --hang-timeout would replace it' err)
[ "$told" = 1 ] || fail "told $told times"
expect_err 'as it stood: rank 2 has not entered all_reduce #[0-9]+, where rank 0-1 are waiting, for [12][0-9]'
grep -q '"waits"' error.json || fail 'not in the error file'

# hang WAY: rank 1 hangs in this way.
hang() {
  run dlaunch --nproc 3 --hang-timeout 3s --max-restarts 1 "$worker" --steps 100 --step-ms 5 --hang 1 --how "$1"
  expect_code 0; expect_under 60000
  expect_err 'rank 1 has not entered all_reduce #[0-9]+, where rank 0,2 are waiting'
  expect_err 'stacks of rank 1'; expect_err 'stacks of rank [02]'
  expect_err 'rank 1 .* it hung, .*; starting it again: round 2'
  ! grep 'is traced' err || fail "took its own look at the stacks for a debugger"
}
hang deadlock
grep -q 'built without libdw' err || expect_err '#[0-9]+ .*deadlock\(\)'
hang blocked
expect_err 'rank 1 is in an uninterruptible sleep, D'

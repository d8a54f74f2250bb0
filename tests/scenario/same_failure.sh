# Only the same failure at the same step ends a job before its --max-restarts are used. The job continues
# however often workers are killed from outside, also without commits.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/elastic_worker

# -- An elastic program that commits only once
dlaunch --nproc 2 --max-restarts 50 --error-file killed.json "$worker" --step-ms 20 --commit-every 1000000 \
  --until enough --log log >out 2>err </dev/null & job=$!
started+=("$job")
rounds_of_1() { cat log 2>/dev/null | grep -c '^round .* rank 1 '; }
in_rounds() { [ "$(rounds_of_1)" -ge "$1" ]; }
for kill in 1 2 3 4 5 6; do
  # Rank 1 of the newest round, after it has done a step.
  wait_until in_rounds $kill || fail "no round after kill $((kill - 1))"
  kill -KILL "$(sed -n 's/^round .* rank 1 .* pid \([0-9]*\) .*/\1/p' log | tail -1)"
done
wait_until in_rounds 7 || fail "did not go on after six kills"
touch enough
wait "$job"; code=$?
expect_code 0; expect_err '6 of 50 restarts used'
grep -q '"ended_by"' killed.json && fail "a job that succeeded was ended by a rule"

# -- The same exception at the same step. dlaunch learns of a commit within half a second, so for
# dlaunch the first failures may come before commit 20.
run dlaunch --nproc 2 --max-restarts 50 --error-file same.json "$worker" --step-ms 1 --die-at 20:1:all --death exit
expect_code 3
expect_err 'no restart: the same failure as in round [123], also within a minute after commit 20: it would come again \(--same-failure-limit 2; with off the job goes on\)'
grep -q '"ended_by": "--same-failure-limit"' same.json || fail "the report does not name the rule"
grep -qE '"restarts_used": [123],' same.json || fail "not after the second one that came at commit 20"

# -- The limit that the user sets
run dlaunch --nproc 2 --max-restarts 50 --same-failure-limit 4 --error-file four.json "$worker" --step-ms 1 --die-at 20:1:all --death exit
expect_code 3; expect_err 'the same failure as in rounds [0-9, ]+ and [0-9]+, also within a minute after commit 20'
grep -qE '"restarts_used": [3-9],' four.json || fail "not after the fourth one"
run dlaunch --nproc 2 --max-restarts 3 --same-failure-limit off --error-file off.json "$worker" --step-ms 1 --die-at 20:1:all --death exit
expect_code 3; expect_err 'no restart: all 3 restarts \(--max-restarts\) are used'
grep -q '"ended_by": "--max-restarts"' off.json || fail "the report does not name --max-restarts"

# -- A program that is not elastic, whose last line is always the same, and that is killed from outside
run dlaunch --nproc 1 --max-restarts 3 sh -c 'echo "a warning" >&2; sleep $((3 + DLAUNCH_ROUND)); kill -9 $$'
expect_code 137; expect_err 'no restart: all 3 restarts'

# -- Options without effect, and wrong values
run dlaunch --nproc 1 --same-failure-limit 3 true; expect_code 64; expect_err 'same-failure-limit has no effect without --max-restarts'
run dlaunch --nproc 1 --max-restarts 1 --same-failure-limit 1 true; expect_code 64; expect_err 'same-failure-limit'

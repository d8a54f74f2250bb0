# A job shrinks and grows while it trains. No process restarts, and the result equals that of one undisturbed
# process: each sample was used once, and no step was lost or repeated.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH"
export TMPDIR="$tmp"  # hides other jobs of this user
worker=("$BUILD/tests/support/elastic_worker" --size 20000 --shard 1003)

dlaunch --progress none --nproc 4 "${worker[@]}" --steps 1000000000 --step-ms 5 --until stop --log log >out 2>err </dev/null & job=$!
started+=("$job")
# begun SIZE: the newest round has this size, and all of its ranks are in it.
begun() {
  local newest; newest=$(sed -n 's/^round \([0-9]*\) .*/\1/p' log 2>/dev/null | tail -1)
  [ -n "$newest" ] && [ "$(grep -c "^round $newest .* size $1 " log)" = "$1" ]
}
wait_until begun 4 || fail "did not begin: $(cat err)"
run_ctl() { dlaunchctl "$@" >ctl.out 2>&1 || fail "dlaunchctl $*: $(cat ctl.out)"; }
# Each resize takes one round, although each rank holds a part of the state.
round=1
for size in 2 4 1 4 3 4; do
  run_ctl resize $size
  wait_until begun $size || { cat log; fail "never $size ranks: $(dlaunchctl status 2>&1)"; }
  newest=$(sed -n 's/^round \([0-9]*\) .*/\1/p' log | sort -n | tail -1)
  [ "$newest" = $((++round)) ] || { cat log; fail "resize $size took the job to round $newest, not $round"; }
done
touch stop
wait "$job"; code=$?; expect_code 0

[ "$(sed -n 's/^round .* rank 0 size .* pid \([0-9]*\) .*/\1/p' log | sort -u | wc -l)" = 1 ] || { cat log; fail "rank 0 was restarted"; }
grep -Eq 'failed|restart' err && fail "somebody was restarted: $(cat err)"
# All ranks of a round continue from the last step of the round before.
sed -n 's/^round \([0-9]*\) .* step \([0-9]*\)$/\1 \2/p' log | sort -un >begins
[ "$(cut -d' ' -f1 begins | uniq -d)" = "" ] || { cat log; fail "ranks of a round begin with different steps"; }
[ "$(cut -d' ' -f2 begins)" = "$(cut -d' ' -f2 begins | sort -n)" ] || { cat log; fail "steps were done again"; }

steps=$(sed -n 's/^\[0\] rank 0 of 4: step \([0-9]*\), result .*/\1/p' out)
results=$(grep -o "step $steps, result [0-9a-f]*" out)
[ "$(wc -l <<<"$results")" = 4 ] || fail "not four results after step $steps"
run "${worker[@]}" --steps "$steps"; expect_code 0
[ "$(sort -u <<<"$results")" = "$(grep -o 'step .*' out)" ] || fail "not the result of one process: $results"

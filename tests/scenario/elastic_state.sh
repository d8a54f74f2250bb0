# The state of an elastic program: whichever worker dies, the result equals that of one undisturbed process.
source "$SOURCE/tests/scenario/common.sh"
worker=("$BUILD/tests/support/elastic_worker" --steps 60 --size 200000 --shard 1003)

run "${worker[@]}"; expect_code 0
result=$(grep -o 'step 60, result [0-9a-f]*' out) || fail "no result"
# expect_result N: N ranks have the result of the single process.
expect_result() { [ "$(grep -c "of $1: $result" out)" = "$1" ] || fail "not the result of one process, $1 times"; }

run dlaunch --nproc 4 "${worker[@]}"
expect_code 0; expect_result 4

# Ranks are replaced: two at once that are not neighbours, and later another one.
run dlaunch --nproc 4 --max-restarts 9 "${worker[@]}" --die-at 20:1 --die-at 20:3 --die-at 40:0 --log replaced
expect_code 0; expect_result 4
# Survivors keep their process and continue from the last commit, or from the commit before it if a
# shard of the last was lost.
survivor=$(grep '^round 1 rank 2 ' replaced | grep -o 'pid [0-9]*') || fail "rank 2 was not in round 1"
grep -Eq "^round [2-9] rank 2 size 4 $survivor step (19|20)$" replaced || { cat replaced; fail "rank 2 has not kept its process and its steps"; }
grep -Eq ' step (39|40)$' replaced || { cat replaced; fail "rank 0 was not lost at step 40"; }
! grep -E '^round [2-9] .* step ([0-9]|1[0-8])$' replaced || fail "committed steps were done again"

# With fewer ranks, the program divides the shards again.
run dlaunch --nproc 4 --min-nproc 2 --max-restarts 0 "${worker[@]}" --die-at 30:2 --log fewer
expect_code 0; expect_result 3
[ "$(grep -c ' size 3 ' fewer)" = 3 ] || { cat fewer; fail "three should have gone on"; }

# All ranks end: the next job begins with the newest snapshot, and with another number of ranks.
run dlaunch --nproc 3 "${worker[@]}" --snapshot snapshots --step-ms 40 --die-at 45:0
[ "$code" != 0 ] || fail "rank 0 was not lost"
run dlaunch --nproc 2 "${worker[@]}" --snapshot snapshots --log again
expect_code 0; expect_result 2
grep -Eq '^round 1 rank 0 size 2 pid [0-9]+ step [1-4]0$' again || { cat again; fail "not begun with a snapshot"; }

# All ranks die at once, and the job starts them again: all continue from the same snapshot.
dlaunch --nproc 3 --max-restarts 1 "${worker[@]}" --snapshot together --step-ms 200 --log all >out 2>err </dev/null & job=$!
started+=("$job")
snapshot() { [ -s together/commit-1-20.replicated.dlstate ]; }
wait_until snapshot || fail "no snapshot: $(ls together)"
members=$(sed -n 's/.* pid \([0-9]*\) .*/\1/p' all)
kill -STOP $members; kill -9 $members  # no rank enters another round while the others are killed
wait "$job"; code=$?; expect_code 0; expect_result 3
[ "$(grep -Ec '^round [2-9] ' all)" = 3 ] || { cat all; fail "not three that were started again"; }
from=$(sed -n 's/^round [2-9] .* step //p' all | sort -u)
[[ $from =~ ^[1-5]0$ ]] || { cat all; fail "all should go on from one snapshot"; }

# dlaunch reports an altered or torn snapshot, and uses the one before it.
newest=$(ls together/*-60.replicated.dlstate) before=$(ls together/*-50.replicated.dlstate)
printf X | dd of="$newest" bs=1 seek=800000 conv=notrunc status=none
cp -r together torn; truncate -s 100000 "torn/${newest#*/}"
for folder in together torn; do
  run dlaunch --nproc 2 "${worker[@]}" --snapshot $folder --log from.$folder
  expect_code 0; expect_result 2
  expect_err "snapshot $folder/${newest#*/} is damaged"
  grep -Eq '^round 1 rank 0 size 2 pid [0-9]+ step 50$' from.$folder || fail "not begun with the one before: $before"
done

# Random programs of all operations, with each result compared: over shared memory and TCP, for two to
# four ranks, with groups, background operations and messages at the same time.
source "$SOURCE/tests/scenario/common.sh"
export DLAUNCH_OP_TIMEOUT=30s DLAUNCH_INIT_TIMEOUT=30s

seed=0
for transport in shm tcp; do
  for ranks in 2 3 4; do
    seed=$((seed + 1))
    DLAUNCH_TRANSPORT=$transport run dlaunch --nproc $ranks "$BUILD/tests/support/random_ops" \
      --seed $seed --seconds 1.2 --groups 8
    cat out
    expect_code 0
    expect_out "$transport, $ranks ranks, seed $seed: .* [1-9][0-9]+ operations, 0 wrong results"
  done
done

# As if each rank had a core of its own: then chunks take turns in their slots.
run dlaunch --nproc 3 env DLAUNCH_LOCAL_CORES=3 "$BUILD/tests/support/random_ops" --seed 7 --seconds 1.2 --groups 8
cat out
expect_code 0
expect_out "shm, 3 ranks, seed 7: .* [1-9][0-9]+ operations, 0 wrong results"

# Mostly groups, which are made, used at the same time and freed. Two ranks with a core each read each other's memory.
for ranks in 2 4; do
  run dlaunch --nproc $ranks env DLAUNCH_LOCAL_CORES=4 "$BUILD/tests/support/random_ops" --seed 2$ranks --seconds 1.5 --groups 100
  cat out
  expect_code 0
  expect_out "shm, $ranks ranks, seed 2$ranks: .* [1-9][0-9]+ operations, 0 wrong results"
done

# With several sockets to each rank.
for sockets in 2 5; do
  DLAUNCH_SOCKETS=$sockets DLAUNCH_TRANSPORT=tcp run dlaunch --nproc 3 "$BUILD/tests/support/random_ops" \
    --seed $sockets --seconds 1.2 --groups 8
  cat out
  expect_code 0
  expect_out "tcp, 3 ranks, seed $sockets: .* [1-9][0-9]+ operations, 0 wrong results"
done

# With algorithms that libdlring would not choose itself for shared memory.
plans=("all::shm-chunk=4K" "all_reduce::shm-blocks,shm-chunk=8000;all_reduce:-64:shm-exchange"
  "all_reduce:-16K:shm-one-shot;reduce::shm-blocks;broadcast::shm-blocks;gather::shm-blocks")
for plan in "${plans[@]}"; do
  DLAUNCH_PLAN=$plan run dlaunch --nproc 2 "$BUILD/tests/support/random_ops" --seed 9 --seconds 1 --groups 8
  cat out
  expect_code 0
  expect_out "shm, 2 ranks, seed 9: .* [1-9][0-9]+ operations, 0 wrong results"
done
DLAUNCH_PLAN="all_reduce:1M-:shm-blocks,shm-chunk=32K" run dlaunch --nproc 2 \
  dlaunch-bench all_reduce --plan -b 512K -e 1M
expect_code 0
expect_out ' 1048576 .*shm: 16 blocks, chunks of 32 KiB \(DLAUNCH_PLAN\)$'
[ "$(grep -c DLAUNCH_PLAN out)" = 1 ] || fail "the rule holds below its size: $(cat out)"

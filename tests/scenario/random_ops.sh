# Random programs of all operations, their results compared one by one: over shared memory and TCP,
# for two to four ranks, with groups, operations in the background and messages beside each other.
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

# Over several sockets to each rank.
for sockets in 2 5; do
  DLAUNCH_SOCKETS=$sockets DLAUNCH_TRANSPORT=tcp run dlaunch --nproc 3 "$BUILD/tests/support/random_ops" \
    --seed $sockets --seconds 1.2 --groups 8
  cat out
  expect_code 0
  expect_out "tcp, 3 ranks, seed $sockets: .* [1-9][0-9]+ operations, 0 wrong results"
done

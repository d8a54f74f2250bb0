# kill -9 of one of four ranks in the middle of a 64 MB all_reduce: each survivor's call returns the
# error that names it, within milliseconds, over shared memory and TCP.
source "$SOURCE/tests/scenario/common.sh"

for transport in shm tcp; do
  run "$BUILD/tests/support/kill_rank" 4 "$transport" "${KILL_TRIALS:-25}"
  cat out
  expect_code 0
done

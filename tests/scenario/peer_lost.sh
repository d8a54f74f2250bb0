# kill -9 of one of four ranks in the middle of a 64 MB all_reduce: each survivor's call returns an
# error that names the rank, over shared memory and TCP. On a quiet machine this takes milliseconds
# (kill_rank 4 shm 100 10 100). The limits here are wide, because machines may be busy.
source "$SOURCE/tests/scenario/common.sh"

for transport in shm tcp; do
  run "$BUILD/tests/support/kill_rank" 4 "$transport" 10 300 15000
  cat out
  expect_code 0
done

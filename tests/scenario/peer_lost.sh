# kill -9 of one of four ranks in the middle of a 64 MB all_reduce: each survivor's call returns the
# error that names it, over shared memory and TCP. The limits here are wide, for machines that are
# busy with other things; on a quiet one it takes milliseconds: kill_rank 4 shm 100 10 100.
source "$SOURCE/tests/scenario/common.sh"

for transport in shm tcp; do
  run "$BUILD/tests/support/kill_rank" 4 "$transport" 25 300 5000
  cat out
  expect_code 0
done

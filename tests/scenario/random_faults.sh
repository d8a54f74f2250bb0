# Something happens to one rank of a random program, in random moments: it is killed, aborts, stops
# for good or for a while. The others are told in time who was lost, or nothing where nobody was, no
# result is wrong, and nothing is left behind.
source "$SOURCE/tests/scenario/common.sh"

leftovers() { ls -d /dev/shm/*dl* random-faults-* 2>/dev/null; }
before=$(leftovers)
for transport in shm tcp; do
  run "$BUILD/tests/support/random_faults" --trials 13 --seed 1 --transport $transport
  cat out
  expect_code 0
done
[ "$(leftovers)" = "$before" ] || fail "left behind: $(leftovers)"

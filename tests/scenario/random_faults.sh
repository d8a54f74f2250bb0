# Something happens to one rank of a random program, in random moments: it is killed, aborts, stops
# for good or for a while. The others are told in time who was lost, or nothing where nobody was, no
# result is wrong, and nothing is left behind.
source "$SOURCE/tests/scenario/common.sh"

leftovers() { ls -d /dev/shm/*dl* random-faults-* 2>/dev/null; }
before=$(leftovers)
seed=1 trials=13
for transport in shm tcp; do
  run "$BUILD/tests/support/random_faults" --trials $trials --seed $seed --transport $transport
  cat out
  expect_code 0
  seed=$((seed + trials))
done
[ "$(leftovers)" = "$before" ] || fail "left behind: $(leftovers)"

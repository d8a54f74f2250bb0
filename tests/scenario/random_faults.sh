# One rank of a random program has an accident at a random moment: it is killed, aborts, stops for ever or for
# a while. If a rank is lost, the others learn its name in time; otherwise no error comes. No result is wrong,
# and nothing is left behind.
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

# A bit flips wherever ranks take data in, reduce them or give them away, and the ranks verify their calls: they
# find each flip that the mode promises to find, and name the rank with a majority of three. Without a flip no
# rank finds a difference; CALLS is the number of calls.
source "$SOURCE/tests/scenario/common.sh"
for mode in results full; do
  run "$BUILD/tests/support/corruption_faults" --mode $mode
  cat out; expect_code 0
done
run "$BUILD/tests/support/corruption_faults" --calls "${CALLS:-5000}"
cat out; expect_code 0
ls -d corruption-* 2>/dev/null && fail "left behind"
:

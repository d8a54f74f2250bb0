# A rank has an accident at each edge of the protocols: it is killed there, stops, is late, writes in small
# pieces, or dies after half a write. If a rank is lost, the others learn its name in time; otherwise no error
# comes. No result is wrong. FAILPOINTS is the number of trials of each edge, 0 for all edges; FAILPOINT_SEED
# chooses them.
source "$SOURCE/tests/scenario/common.sh"
parts=4 pids=()
for ((part = 1; part <= parts; ++part)); do
  [ $part != $parts ] || export DLAUNCH_SOCKETS=3  # over TCP
  "$BUILD/tests/support/failpoint_faults" --part $part/$parts --sample "${FAILPOINTS:-1}" \
    --seed "${FAILPOINT_SEED:-1}" >out.$part 2>&1 &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=1; done
cat out.* >out
cat out
expect_code 0
ls -d random-faults-* 2>/dev/null && fail "left behind"
:

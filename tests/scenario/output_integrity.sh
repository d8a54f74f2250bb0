# Four workers write as fast as they can. No line is torn, lost or out of order within a rank.
source "$SOURCE/tests/scenario/common.sh"

each=${LINE_BLAST_MB:-50}
dlaunch --nproc 4 "$BUILD/tests/support/line_blast" "$each" 2>err </dev/null |
  "$BUILD/tests/support/line_check" 4 "$each" >out
[ "${PIPESTATUS[*]}" = "0 0" ] || fail "lines are wrong, or dlaunch failed"
# stdout and stderr share a pipe, with partial lines, long lines and a kill in the middle.
dlaunch --nproc 4 "$BUILD/tests/support/line_blast" 5 both 2>&1 </dev/null |
  "$BUILD/tests/support/line_check" 4 5 both >out || fail "$(cat out)"

# A filter of a worker's output writes after the worker's end, more than a pipe holds, and no newline at its end.
filtered='exec > >(sed "s/^/x /"; printf end) 2> >(sed "s/^/y /" >&2); seq 1 50000; echo problem >&2'
for log in "" logs; do
  run dlaunch --nproc 2 ${log:+--log-dir "$log"} bash -c "$filtered"
  expect_code 0
  for rank in 0 1; do
    [ "$(grep -c "^\[$rank\] x " out)" = 50000 ] || fail "rank $rank: $(grep -c "^\[$rank\] x " out) lines"
    grep -qx "\[$rank\] end" out || fail "the line without newline of rank $rank is lost"
  done
done

# Four workers write as fast as they can. No line is torn, lost or out of order within a rank.
source "$SOURCE/tests/scenario/common.sh"

each=${LINE_BLAST_MB:-50}
dlaunch --nproc 4 "$BUILD/tests/support/line_blast" "$each" 2>err </dev/null |
  "$BUILD/tests/support/line_check" 4 "$each" >out || fail "$(cat out)"
# stdout and stderr share a pipe, with partial lines, long lines and a kill in the middle.
dlaunch --nproc 4 "$BUILD/tests/support/line_blast" 5 both 2>&1 </dev/null |
  "$BUILD/tests/support/line_check" 4 5 both >out || fail "$(cat out)"

# --log-dir keeps each rank's raw bytes; a full disk costs a warning, not the job.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 3 --log-dir logs sh -c 'printf "out $RANK\nno newline"; echo err $RANK >&2'
expect_code 0
for r in 0 1 2; do
  [ "$(cat logs/1/$r/stdout)" = "$(printf "out $r\nno newline")" ] || fail "stdout of $r"
  [ "$(cat logs/1/$r/stderr)" = "err $r" ] || fail "stderr of $r"
  expect_out "^\[$r\] no newline$"
done
# Another job's are not lost.
run dlaunch --nproc 1 --log-dir logs echo again
[ "$(cat logs/1/0/stdout)" = $'out 0\nno newlineagain' ] || fail "the first job's log: $(cat logs/1/0/stdout)"
run dlaunch --nproc 2 --output files --log-dir quiet sh -c 'echo x; echo y >&2'
expect_code 0; [ ! -s out ] && [ ! -s err ] || fail "files mode shows something"
# The report says where the rest is.
run dlaunch --nproc 2 --log-dir deep sh -c 'seq 100 >&2; exit $((RANK * 9))'
expect_code 9; expect_err '^dlaunch:   all of its stderr: deep/1/1/stderr$'
[ "$(wc -l <deep/1/1/stderr)" = 100 ] || fail "not all of it"
run dlaunch --nproc 2 --log-dir /proc/none true
expect_code 73; expect_err '/proc/none'

[ "$(id -u)" = 0 ] || exit 0
mkdir full && mount -t tmpfs -o size=64k none full 2>/dev/null || exit 0
run dlaunch --nproc 1 --log-dir full sh -c 'head -c 1000000 /dev/zero | tr "\0" x | fold; echo; echo end'
umount full
expect_code 0; expect_out '^\[0\] end$'; expect_err 'No space left.*goes on without this file'

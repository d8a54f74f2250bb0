# --log-dir keeps each rank's raw bytes. A full disk causes a warning and does not end the job.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 3 --log-dir logs sh -c 'printf "out $RANK\nno newline"; echo err $RANK >&2'
expect_code 0
for r in 0 1 2; do
  [ "$(cat logs/1/$r/stdout)" = "$(printf "out $r\nno newline")" ] || fail "stdout of $r"
  [ "$(cat logs/1/$r/stderr)" = "err $r" ] || fail "stderr of $r"
  expect_out "^\[$r\] no newline$"
done
# The files of another job are kept.
run dlaunch --nproc 1 --log-dir logs echo again
[ "$(cat logs/1/0/stdout)" = $'out 0\nno newlineagain' ] || fail "the first job's log: $(cat logs/1/0/stdout)"
run dlaunch --nproc 2 --output files --log-dir quiet sh -c 'echo x; echo y >&2'
expect_code 0; [ ! -s out ] && [ ! -s err ] || fail "files mode shows something"
# The report names the file with the whole output.
run dlaunch --nproc 2 --log-dir deep sh -c 'seq 100 >&2; exit $((RANK * 9))'
expect_code 9; expect_err '^dlaunch:   all of its stderr: deep/1/1/stderr$'
[ "$(wc -l <deep/1/1/stderr)" = 100 ] || fail "not all of it"
run dlaunch --nproc 2 --log-dir /proc/none true
expect_code 73; expect_err '/proc/none'

[ "$(id -u)" = 0 ] || exit 0
mkdir full && mount -t tmpfs -o size=64k none full 2>/dev/null || exit 0
run dlaunch --nproc 1 --log-dir full sh -c 'head -c 1000000 /dev/zero | tr "\0" x | fold; echo; echo end'
expect_full() { expect_code 0; expect_err 'write full/1/0/stdout: No space left.*; what does not fit is lost'; }
(expect_full; expect_out '^\[0\] end$') || { umount full; exit 1; }

# When the disk has room again, the file continues, and says how many bytes are missing.
rm -r full/*; rm err; head -c 60000 /dev/zero >full/hog
dlaunch --nproc 1 --log-dir full --redirects 3 bash -c "$never"'seq 4000
  while [ ! -e freed ]; do read -rt 0.05 -u 9; done; echo late' >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until grep -qs "No space left" err
rm full/hog; touch freed
wait "$keeper"; code=$?
tail -n 2 full/1/0/stdout >last; umount full
expect_full
grep -qE '^dlaunch: [0-9]+ bytes were lost here: no space was left$' last || fail "no word of the loss: $(cat last)"
[ "$(tail -n 1 last)" = late ] || fail "it does not go on: $(cat last)"

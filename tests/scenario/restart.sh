# --max-restarts: all workers start again in a new round, until the restarts are used up.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 2 --max-restarts 2 sh -c 'echo round $DLAUNCH_ROUND count $TORCHELASTIC_RESTART_COUNT; [ $RANK = 1 ] && [ $DLAUNCH_ROUND -lt 3 ] && exit 5; exit 0'
expect_code 0
for round in 1 2 3; do expect_out "^\[1\] round $round count $((round - 1))$"; done
expect_err 'rank 1 .* failed first: exit code 5 .*; restarting all workers: round 2, 1 of 2 restarts used'

run dlaunch --nproc 2 --max-restarts 1 --log-dir logs bash -c 'echo $DLAUNCH_ROUND; [ $RANK = 0 ] && exec sleep 60; until [ -s logs/$DLAUNCH_ROUND/0/stdout ]; do read -rt 0.01 <> <(:); done; exit 5'
expect_code 5; expect_err 'no restart: the only restart .* is used'
[ "$(cat logs/1/0/stdout logs/2/1/stdout | tr '\n' ' ')" = "1 2 " ] || fail "log files of both rounds"

# In a job of one worker dlaunch reports the restart once.
run dlaunch --nproc 1 --max-restarts 1 sh -c '[ $DLAUNCH_ROUND = 2 ] || exit 4'
expect_code 0; expect_err 'failed first: exit code 4 .*; restarting all workers: round 2, 1 of 1 restarts used'
[ "$(wc -l <err)" = 1 ] || fail "told twice: $(cat err)"

# Independent tasks: dlaunch repeats the failed task, and not the tasks that run or have succeeded.
mkdir tasks
run dlaunch --nproc 3 --max-restarts 1 --restart-scope worker bash -c '
  echo x >> tasks/$RANK
  case $RANK in
    0) exit 0;;
    1) [ -e tasks/failed ] || { until [ -s tasks/0 ] && [ -s tasks/2 ]; do read -rt 0.01 <> <(:); done
         sleep 0.3; touch tasks/failed; exit 6; };;
    2) until [ "$(cat tasks/1 | wc -l)" = 2 ]; do read -rt 0.01 <> <(:); done;;
  esac; exit 0'
expect_code 0; expect_err 'rank 1 .*exit code 6.*starting it again'
[ "$(cat tasks/0 | wc -l) $(cat tasks/1 | wc -l) $(cat tasks/2 | wc -l)" = "1 2 1" ] || fail "not done once each: $(head tasks/?)"

# Each failure of a task counts. The report is about the last failure, and not about one that a restart repaired.
rm -r tasks; mkdir tasks
run dlaunch --nproc 2 --max-restarts 1 --restart-scope worker bash -c '
  echo x >> tasks/$RANK
  [ $RANK = 0 ] && [ "$(cat tasks/0 | wc -l)" = 1 ] && exit 6
  until [ "$(cat tasks/0 | wc -l)" = 2 ]; do read -rt 0.01 <> <(:); done
  [ $RANK = 1 ] || exec sleep 100
  sleep 0.5; exit 9'
expect_code 9; expect_err 'rank 1 .*failed first: exit code 9'; expect_err 'no restart: the only restart .* is used'

# dlaunch ends the processes of a round before the next round begins.
run dlaunch --nproc 1 --max-restarts 1 bash -c '
  [ $DLAUNCH_ROUND = 2 ] && { ! kill -0 "$(cat child)" && echo alone; exit; }
  setsid sh -c "echo \$\$ > child; exec sleep 1000" & until [ -s child ]; do read -rt 0.01 <> <(:); done; exit 3'
expect_code 0; expect_out '^\[0\] alone$'

# An exit code of --no-restart-codes ends the job.
run dlaunch --nproc 2 --max-restarts 5 --no-restart-codes 3,7-9 sh -c '[ $RANK = 1 ] && exit 8; exec sleep 60'
expect_code 8; expect_err 'no restart: exit code 8 is one of --no-restart-codes'

# A failure that passes within seconds, or with another number in its message, does not end the job.
run dlaunch --nproc 2 --max-restarts 5 sh -c '[ $TORCHELASTIC_RESTART_COUNT = 2 ] || { echo "server does not respond" >&2; exit 2; }'
expect_code 0; expect_err 'round 3, 2 of 5 restarts'

# The same message again after ten seconds ends the job.
run dlaunch --nproc 2 --max-restarts 5 sh -c '[ $RANK = 0 ] && { [ $DLAUNCH_ROUND = 1 ] || sleep 10; echo "no such table: weights" >&2; exit 2; }; exec sleep 60'
expect_code 2; expect_err 'round 2, 1 of 5 restarts'; expect_err 'no restart: the same failure as in round 1'

# A crash loop: dlaunch reports its pauses, and ends with the program's exit code and last lines.
run dlaunch --nproc 2 --max-restarts 3 bash -c '
  words=(- "the database is away" "no such host" "permission denied" "out of ports")
  [ $RANK = 1 ] && { echo "cannot begin: ${words[$DLAUNCH_ROUND]}" >&2; exit 9; }; exec sleep 60'
expect_code 9
[ "$(grep -c 'restarting all workers: round' err)" = 3 ] || fail "not three restarts"
expect_err 'rank 1 failed; all workers are started again in [0-9.]+ m?s'
[ "$(grep -n 'failed first' err | tail -1 | cut -d: -f1)" -lt "$(grep -n '^dlaunch: *cannot begin: out of ports' err | cut -d: -f1)" ] || fail "not its own root cause"
expect_err 'no restart: all 3 restarts \(--max-restarts\) are used'

# Nothing restarts after the user's signal.
dlaunch --nproc 1 --max-restarts 5 bash -c "$never"'trap "exit 3" TERM; echo x >> rounds; while :; do read -rt 0.05 -u 9; done' >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until test -s rounds || fail "worker did not start"
kill -TERM "$keeper"; wait "$keeper"; code=$?
expect_code 143; [ "$(wc -l < rounds)" = 1 ] || fail "restarted after SIGTERM"

# If dlaunch cannot make the folder of a round, the round still has all workers.
mkdir own
TMPDIR=$PWD/own dlaunch --nproc 3 --spares 1 --max-restarts 3 "$BUILD/tests/support/elastic_worker" \
  --steps 90 --step-ms 100 --die-at 70:1 >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until bash -c 'cd own/dlaunch-job-*/1 2>/dev/null' || fail "did not start"
folder=$(echo own/dlaunch-job-*)
touch "$folder/2" "$folder/3"  # 3: if the survivors report the loss before the agent sees the death
wait "$keeper"; code=$?
expect_code 0; expect_err 'File exists; messages about this round.s failures are lost'
[ "$(grep -c 'of 3: step 90' out)" = 3 ] || fail "not all three came to the end: $(cat out)"

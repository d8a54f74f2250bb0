# --max-restarts: all workers start again in a new round, until the restarts are used up.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 2 --max-restarts 2 sh -c 'echo round $DLAUNCH_ROUND count $TORCHELASTIC_RESTART_COUNT; [ $RANK = 1 ] && [ $DLAUNCH_ROUND -lt 3 ] && exit 5; exit 0'
expect_code 0
for round in 1 2 3; do expect_out "^\[1\] round $round count $((round - 1))$"; done
expect_err 'rank 1 .* failed first: exit code 5 .*; restarting all workers: round 2, 1 of 2 restarts used'

run dlaunch --nproc 2 --max-restarts 1 --log-dir logs bash -c 'echo $DLAUNCH_ROUND; [ $RANK = 0 ] && exec sleep 60; until [ -s logs/$DLAUNCH_ROUND/0/stdout ]; do read -rt 0.01 <> <(:); done; exit 5'
expect_code 5; expect_err 'restarts used: 1 of 1'
[ "$(cat logs/1/0/stdout logs/2/1/stdout | tr '\n' ' ')" = "1 2 " ] || fail "log files of both rounds"

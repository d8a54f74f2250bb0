# A worker that ignores SIGTERM is killed right after --grace; --timeout ends a job.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 2 --grace 1 bash -c 'trap "" TERM; [ $RANK = 1 ] && { until [ -e go ]; do read -rt 0.01 <> <(:); done; exit 7; }; touch go; while :; do read -rt 1 <> <(:); done'
expect_code 7
[ "$ms" -ge 1000 ] && [ "$ms" -le 7000 ] || fail "took $ms ms with a grace of 1 s"
expect_err '1 had to be killed after the grace of 1 s'

run dlaunch --nproc 2 --timeout 0.5 sleep 60
expect_code 75; expect_under 7000
expect_err 'timeout'

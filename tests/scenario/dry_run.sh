# --dry-run prints the whole plan and starts nothing.
source "$SOURCE/tests/scenario/common.sh"
run dlaunch --nproc 2 --bind core --dry-run touch ran
expect_code 0
[ ! -e ran ] || fail "a worker was started"
expect_out 'touch'
[ ! -s err ] || fail "stderr is not empty"
run dlaunch --nproc 0 --dry-run touch ran
expect_code 64

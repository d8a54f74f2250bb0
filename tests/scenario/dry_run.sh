# --dry-run prints the whole plan and starts nothing.
source "$SOURCE/tests/scenario/common.sh"
run dlaunch --nproc 2 --bind core --dry-run touch ran
expect_code 0
[ ! -e ran ] || fail "a worker was started"
expect_out 'touch'
[ ! -s err ] || fail "stderr is not empty"
run dlaunch --nproc 0 --dry-run touch ran
expect_code 64

# --emit writes what was asked for, and tells what is left out.
run dlaunch --emit kubernetes --image train --nnodes 2 -x NOT_SET --error-file /of/the/pod touch ran
expect_code 0
expect_out '"/of/the/pod"'
expect_err '^dlaunch: warning: -x NOT_SET: it is not set here, so it is not passed on$'
[ "$(wc -l <err)" = 1 ] || fail "more than one warning"

# The first failure ends the job at once, with its own exit code, and is named.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 4 sh -c '[ $RANK = 2 ] && exit 7; sleep 60'
expect_code 7; expect_under 7000
expect_err 'rank 2 \(pid [0-9]+ on .*\) failed first: exit code 7'
expect_err 'the other 3 workers were sent SIGTERM'

run dlaunch --nproc 4 sh -c '[ $RANK = 2 ] && kill -SEGV $$; sleep 60'
expect_code 139; expect_under 7000
expect_err 'rank 2 .* failed first: killed by SIGSEGV'

# A worker that ends well early ends nothing.
run dlaunch --nproc 2 bash -c '[ $RANK = 0 ] && exit 0; read -rt 0.3 <> <(:); echo done'
expect_code 0; expect_out '^\[1\] done$'

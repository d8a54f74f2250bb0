# Programs of MPICH are ranks of one world, fail like others, and are started again together.
source "$SOURCE/tests/scenario/common.sh"
command -v mpicc.mpich >/dev/null || skip "MPICH is not installed"
mpicc.mpich -std=gnu99 "$SOURCE/tests/support/mpi_program.c" -o program || fail "it does not compile"

run dlaunch --nproc 4 ./program
expect_code 0; expect_under 20000
for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4 on .*: sum 10$"; done
run dlaunch --nproc 3 sh -c './program; exit 0'
expect_code 0; [ "$(grep -c 'of 3 on .*: sum 6$' out)" = 3 ] || fail "not three lines"

run dlaunch --nproc 3 ./program abort
expect_code 7; expect_under 20000
expect_err 'rank 1 .* failed first: exit code 7'; expect_err 'the other 2 workers were sent SIGTERM'
run dlaunch --nproc 3 ./program die
expect_code 137; expect_err 'rank 1 .* failed first: killed by SIGKILL'
run dlaunch --nproc 3 --max-restarts 1 ./program die mark
expect_code 0; expect_err 'restarting all workers: round 2'
[ "$(grep -c 'of 3 on .*: sum 6$' out)" = 6 ] || fail "not all came together again"

# A launcher within it has the last word.
run dlaunch --nproc 1 mpiexec.mpich -np 2 ./program
expect_code 0; [ "$(grep -c 'of 2 on .*: sum 3$' out)" = 2 ] || fail "mpiexec's world is another one"

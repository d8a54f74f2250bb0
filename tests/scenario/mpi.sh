# MPI programs, of MPICH and of Open MPI, are ranks of one world, fail like others, are started again
# together, and leave nothing behind.
source "$SOURCE/tests/scenario/common.sh"
command -v mpicc.mpich >/dev/null && command -v mpicc.openmpi >/dev/null ||
  skip "MPICH and Open MPI are not installed"
sums() { [ "$(grep -c "of $1 on .*: sum $2\$" out)" = "$3" ] || fail "not $3 lines: $(cat out err)"; }
ls /dev/shm >shm.before

for library in mpich openmpi; do
  mpicc.$library -std=gnu99 "$SOURCE/tests/support/mpi_program.c" -o program || fail "it does not compile"
  run dlaunch --nproc 4 ./program
  expect_code 0; expect_under 20000
  for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4 on .*: sum 10$"; done
  run dlaunch --nproc 3 sh -c './program; exit 0'
  expect_code 0; sums 3 6 3

  run dlaunch --nproc 3 ./program abort
  expect_code 7; expect_under 20000
  expect_err 'rank 1 .* failed first: exit code 7'; expect_err 'the other 2 workers were sent SIGTERM'
  run dlaunch --nproc 3 ./program die
  expect_code 137; expect_err 'rank 1 .* failed first: killed by SIGKILL'
  run dlaunch --nproc 3 --max-restarts 1 ./program die mark.$library
  expect_code 0; expect_err 'restarting all workers: round 2'; sums 3 6 6
  ls /dev/shm | cmp -s - shm.before || fail "left in /dev/shm: $(ls /dev/shm)"

  # A launcher within it has the last word.
  case $library in
    mpich) inner=(mpiexec.mpich -np 2) ;;
    openmpi) inner=(mpirun.openmpi --allow-run-as-root --oversubscribe -np 2) ;;
  esac
  run dlaunch --nproc 1 "${inner[@]}" ./program
  expect_code 0; sums 2 3 2
done

# Without libpmix, and with one that is none, a program of Open MPI is on its own.
DLAUNCH_PMIX_LIBRARY=none run dlaunch --nproc 2 ./program
expect_code 0; sums 1 1 2
# What a program finds the others by is for its own user.
if [ "$(id -u)" = 0 ]; then
  run dlaunch --nproc 1 bash -c 'exec setpriv --reuid 65534 --clear-groups \
    bash -c "exec 3<>/dev/tcp/127.0.0.1/\${PMIX_SERVER_URI3##*:} && cat <&3"'
  expect_code 0; expect_err 'a connection of another user is refused'
fi

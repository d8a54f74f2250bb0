# Programs of MPICH and of Open MPI are ranks of one world. They fail like other programs, restart together,
# and leave nothing behind.
source "$SOURCE/tests/scenario/common.sh"
command -v mpicc.mpich >/dev/null && command -v mpicc.openmpi >/dev/null ||
  skip "MPICH and Open MPI are not installed"
sums() { [ "$(grep -c "of $1 on .*: sum $2\$" out)" = "$3" ] || fail "not $3 lines: $(cat out err)"; }
ls /dev/shm >shm.before

for library in mpich openmpi; do
  mpicc.$library -std=gnu99 "$SOURCE/tests/support/mpi_program.c" -o program || fail "it does not compile"
  run dlaunch --nproc 4 ./program
  expect_code 0; expect_under 60000
  for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4 on .*: sum 10$"; done
  run dlaunch --nproc 3 sh -c './program; exit 0'
  expect_code 0; sums 3 6 3

  # Several programs are one world, and each knows its MPI_APPNUM.
  run dlaunch -n 2 ./program appnum : -n 1 ./program appnum
  expect_code 0; sums 3 6 3
  expect_out '^\[0\] rank 0 is of program 0$'; expect_out '^\[1\] rank 1 is of program 0$'
  expect_out '^\[2\] rank 2 is of program 1$'

  run dlaunch --nproc 3 ./program abort
  expect_code 7; expect_under 60000
  expect_err 'rank 1 .* failed first: exit code 7'; expect_err 'the other 2 workers were sent SIGTERM'
  # A job takes no new processes: dlaunch names the rank and an alternative, and no rank waits. An MPICH that is
  # built on UCX, like Debian's, does not ask the launcher and fails with its own error, also under its mpiexec.
  refused='rank 1 called MPI_Comm_spawn\(\), which fails: dlaunch starts a fixed number of ranks.*-np 1 ./parent : -np 4 ./child'
  run dlaunch --nproc 3 ./program spawn
  expect_under 60000; [ "$code" != 0 ] || fail "the job ends well"
  expect_err "rank 1 .* failed first: exit code $code"; expect_err MPI_Comm_spawn
  [ $library = mpich ] || expect_err "$refused"
  run dlaunch --nproc 3 ./program spawn return
  expect_code 0; sums 3 6 3; [ $library = mpich ] || expect_err "$refused"; expect_out '^\[1\] rank 1: MPI_Comm_spawn fails$'
  run dlaunch --nproc 3 ./program die
  expect_code 137; expect_err 'rank 1 .* failed first: killed by SIGKILL'
  run dlaunch --nproc 3 --max-restarts 1 ./program die mark.$library
  expect_code 0; expect_err 'restarting all workers: round 2'; sums 3 6 6
  ls /dev/shm | cmp -s - shm.before || fail "left in /dev/shm: $(ls /dev/shm)"

  # An inner launcher overrides dlaunch's ranks.
  case $library in
    mpich) inner=(mpiexec.mpich -np 2) ;;
    openmpi) inner=(mpirun.openmpi --allow-run-as-root --oversubscribe -np 2) ;;
  esac
  run dlaunch --nproc 1 "${inner[@]}" ./program
  expect_code 0; sums 2 3 2
done

# A rank that joins a round of running ranks gets a world of its own, because the others would not answer.
for library in mpich openmpi; do
  mpicc.$library -std=gnu99 "$SOURCE/tests/support/mpi_program.c" -o program || fail "it does not compile"
  rm -f mark
  # Each rank is alone, and two daemons that Open MPI starts at once would race for one folder in /tmp.
  run dlaunch --nproc 2 --max-restarts 1 --restart-scope worker sh -c \
    'export OMPI_MCA_orte_tmpdir_base=$PWD/alone.$RANK; mkdir -p alone.$RANK; ./program && { [ $RANK = 0 ] || [ -e mark ] || { touch mark; exit 5; }; }'
  expect_code 0; expect_under 60000; sums 1 1 3
done
run dlaunch --nproc 2 --max-restarts 9 \
  sh -c 'echo "$RANK of $DLAUNCH_ROUND:$PMI_FD:$PMIX_RANK"; exec "$0" "$@"' \
  "$BUILD/tests/support/elastic_worker" --steps 60 --size 1000 --shard 100 --die-at 20:1
expect_code 0; expect_out '1 of 1:[0-9]+:1$'; expect_out '1 of [2-9]::$'

# The ranks' files in /dev/shm are removed, however the job ends. The PMIx server survives a rank that
# closes its connection early.
start_waiting() {
  rm -f go out err
  dlaunch --nproc 2 ./program wait go >out 2>err </dev/null & job=$!
  started+=("$job")
  summed() { [ "$(grep -c 'of 2 on .*: sum 3$' out 2>&1)" = 2 ]; }
  wait_until summed || fail "the ranks have not met"
  ! ls /dev/shm | cmp -s - shm.before || fail "the ranks have nothing in /dev/shm"
  agent=$(pgrep -P "$job")
  server=$(pgrep -P "$agent" -x dlaunch-cleaner) || fail "nobody serves them"
  ! grep -q libpmix "/proc/$agent/maps" || fail "the agent has loaded libpmix"
}
expect_clean() {
  ended() { ! alive "$agent" && ! alive "$server"; }
  wait_until ended || fail "still there after $1: $agent or $server"
  ls /dev/shm | cmp -s - shm.before || fail "left in /dev/shm after $1: $(ls /dev/shm)"
}
start_waiting; kill -PIPE "$server"; touch go; wait "$job" || fail "served no more: $(cat err)"
expect_clean SIGPIPE
start_waiting; kill -KILL "$agent"; wait "$job"; expect_clean "the agent's loss"
start_waiting; kill -KILL "$job"; wait "$job"; expect_clean "the keeper's loss"
start_waiting; kill -STOP "$server"; kill -INT "$job"; wait "$job"; expect_clean "a stop of the server"

# dlaunch names the rank that the others wait for.
dlaunch --nproc 2 sh -c '[ $RANK = 1 ] || exec ./program' >out 2>err </dev/null & job=$!
started+=("$job")
told() { grep -q 'MPI_Init() waits for rank 1, which has ended without it' err; }
wait_until told || fail "no message about rank 1: $(cat err)"
kill -INT "$job"; wait "$job"

# Without libpmix, or with a file that is not libpmix, each process of Open MPI is a world of its own.
DLAUNCH_PMIX_LIBRARY=none run dlaunch --nproc 2 ./program
expect_code 0; sums 1 1 2
# The PMIx server answers only the user's own processes that know the round's name.
run dlaunch --nproc 1 sh -c 'PMIX_NAMESPACE=${PMIX_NAMESPACE%-*} exec ./program'
expect_code 1; expect_err 'Unreachable'
if [ "$(id -u)" = 0 ]; then
  run dlaunch --nproc 1 bash -c 'setpriv --reuid 65534 --clear-groups \
    bash -c "exec 3<>/dev/tcp/127.0.0.1/\${PMIX_SERVER_URI3##*:} && cat <&3"
    ! pgrep -P $PPID -x dlaunch-cleaner'
  expect_code 0; expect_err 'refused a connection of another user'
fi

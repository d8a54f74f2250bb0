# Programs of MPICH are ranks of one world on several hosts, too, with unequal numbers of workers, by
# whatever the hosts meet, encrypted or not, and again after a failure.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
command -v mpicc.mpich >/dev/null || skip "MPICH is not installed"
hosts_up 3
export LEAVE=1
mpicc.mpich -std=gnu99 "$SOURCE/tests/support/mpi_program.c" -o program || fail "it does not compile"

all_summed() { # RANKS SUM TIMES
  [ "$(cat out.* | grep -c "of $1 on host[123]: sum $2\$")" = $(($1 * $3)) ] ||
    fail "not $1 ranks $3 times: $(cat out.*)"
}
rdzv=(--rdzv tcp://host1:29400 --secret-file "$PWD/secret")
start_job "1 2 3" --nnodes 3 --nproc 2 "$PWD/program"
wait_job 60 0; all_summed 6 21 1
start_job "3 1 2" --nnodes 3 --nproc 1 --tls --max-restarts 1 "$PWD/program" die "$PWD/mark"
wait_job 60 0; all_summed 3 6 2
rdzv=(--rdzv "file://$PWD/meet" --secret-file "$PWD/secret")
start_job "1 2" --nnodes 2 --nproc 2 "$PWD/program" abort
wait_job 60 7

# MPI programs are ranks of one world on several hosts, too: with unequal numbers of workers, with
# every way in which hosts meet, encrypted or not, and again after a failure.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
command -v mpicc.mpich >/dev/null && command -v mpicc.openmpi >/dev/null ||
  skip "MPICH and Open MPI are not installed"
hosts_up 3
printf 'SwitchName=a Nodes=host[1,3]\nSwitchName=b Nodes=host2\n' > racks

all_summed() { # RANKS SUM TIMES
  [ "$(cat out.* | grep -c "of $1 on host[123]: sum $2\$")" = $(($1 * $3)) ] ||
    fail "not $1 ranks $3 times: $(cat out.* err.*)"
}
for library in mpich openmpi; do
  export LEAVE=$([ $library = openmpi ] || echo 1)
  program=$PWD/program.$library
  mpicc.$library -std=gnu99 "$SOURCE/tests/support/mpi_program.c" -o "$program" ||
    fail "it does not compile"
  rdzv=(--rdzv tcp://host1:29400 --secret-file "$PWD/secret")
  start_job "1 2 3" --nnodes 3 --nproc 2 "$program"
  wait_job 120 0; all_summed 6 21 1
  # Host 3 has the ranks before those of host 2.
  start_job ""
  for h in 3 2 1; do start_dlaunch $h --nnodes 3 --nproc 2 --node-rank $((h - 1)) --topology racks "$program"; done
  wait_job 120 0; all_summed 6 21 1
  start_job "3 1 2" --nnodes 3 --nproc 1 --tls --max-restarts 1 "$program" die "$PWD/mark.$library"
  wait_job 120 0; all_summed 3 6 2
  rdzv=(--rdzv "file://$PWD/meet.$library" --secret-file "$PWD/secret")
  start_job "1 2" --nnodes 2 --nproc 2 "$program" abort
  wait_job 120 7
done

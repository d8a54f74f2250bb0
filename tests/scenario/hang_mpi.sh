# A rank of MPI sleeps for good, and the others spin in a collective: their stacks show that they wait. While one rank
# computes and the others wait, nothing ends the job.
source "$SOURCE/tests/scenario/common.sh"
command -v mpicc.openmpi >/dev/null || skip 'Open MPI is not installed'
"$BUILD/cli/dlaunch" --version >/dev/null || fail 'dlaunch does not run'

cat >hang.c <<'C'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void sleep_for_good(void) { for (;;) sleep(1000); }
static void compute(void) { for (volatile long i = 0;; ++i) {} }
int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int step = 0; step < 5; ++step) {
    if (step == 3 && rank == 1) strcmp(argv[1], "sleep") == 0 ? sleep_for_good() : compute();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return 0;
}
C
mpicc.openmpi -g -O0 hang.c -o hang || fail 'it does not compile'
run dlaunch --nproc 3 --hang-timeout 8s --timeout 100s ./hang sleep
grep -q 'built without libdw' err && skip 'stacks of C programs have no names without libdw'
expect_code 137; expect_err 'rank 1 .* failed first: it hung'
expect_err 'rank 1 has neither written output nor used CPU time, for'; expect_err 'sleep_for_good'

# The waiting ranks sleep between two looks.
export OMPI_MCA_mpi_yield_when_idle=1
run dlaunch --nproc 3 --hang-timeout 4s --timeout 12s ./hang compute
expect_code 75; ! grep 'it hung' err || fail 'a job was ended in which a rank computes'

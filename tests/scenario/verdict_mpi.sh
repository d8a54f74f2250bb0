# Ranks of Open MPI give up waiting in a barrier: the report names the rank that does not come.
source "$SOURCE/tests/scenario/verdict.sh"
command -v mpicc.openmpi >/dev/null || skip "Open MPI is not here (libopenmpi-dev)"
cat >stuck.c <<'C'
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) void get_stuck(const char* kind) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  volatile unsigned turns = 0;
  int ends[2];
  char byte;
  if (strcmp(kind, "lock") == 0) pthread_mutex_lock(&mutex), pthread_mutex_lock(&mutex);
  if (strcmp(kind, "sleep") == 0) sleep(1000);
  while (strcmp(kind, "loop") == 0) turns = turns + 1;
  if (strcmp(kind, "read") == 0 && pipe(ends) == 0) turns = (unsigned)read(ends[0], &byte, 1);
  if (strcmp(kind, "stopped") == 0) raise(SIGSTOP);
}

int main(int argc, char** argv) {
  MPI_Request request;
  int rank, done = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == atoi(getenv("CULPRIT"))) get_stuck(getenv("KIND"));
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (double end = MPI_Wtime() + atof(getenv("PATIENCE")); !done && MPI_Wtime() < end;) {
    for (int i = 0; i < 1000 && !done; ++i) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
  if (done) return 0;
  fprintf(stderr, "rank %d: the barrier timed out\n", rank);
  MPI_Abort(MPI_COMM_WORLD, 3);
}
C
mpicc.openmpi -g -O1 -pthread stuck.c -o stuck || fail "cannot build the program"
export PATIENCE=2
run dlaunch --nproc 4 env CULPRIT=9 KIND=- ./stuck
[ "$code" = 0 ] || skip "Open MPI does not work here"

for kind in $kinds; do found "$kind" 1 3 ./stuck; done
export PATIENCE=1
random_culprits 20 3 ./stuck

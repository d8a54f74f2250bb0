/* An MPI program. usage: mpi_program [abort | die [MARK] | wait FILE | appnum | spawn [return]]
 * Adds up ranks, and says what came out. Then rank 1 calls MPI_Abort(7), or kills itself; once, if
 * there is a MARK to leave; or all wait until there is a FILE; or it calls MPI_Comm_spawn(), and
 * continues after the error if errors are returned. With LEAVE in its environment it ends without
 * MPI_Finalize(), in which MPICH 4.0 may hang with ranks on several hosts, under any launcher. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, size, length;
  long mine, sum = 0;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(host, &length);
  mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d on %s: sum %ld\n", rank, size, host, sum);
  fflush(stdout);
  if (argc > 1 && strcmp(argv[1], "appnum") == 0) {
    int found = 0, *appnum = NULL;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
    printf("rank %d is of program %d\n", rank, found ? *appnum : -1);
    fflush(stdout);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const char* fault = rank == 1 && argc > 1 ? argv[1] : "";
  if (strcmp(fault, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
  if (strcmp(fault, "spawn") == 0) {
    MPI_Comm child;
    int codes[2];
    if (argc > 2) MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const int code =
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &child, codes);
    printf("rank %d: MPI_Comm_spawn %s\n", rank, code == MPI_SUCCESS ? "succeeds" : "fails");
    fflush(stdout);
  }
  if (strcmp(fault, "die") == 0 &&
      (argc < 3 || open(argv[2], O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0)) {
    raise(SIGKILL);
  }
  while (argc > 2 && strcmp(argv[1], "wait") == 0 && access(argv[2], F_OK) != 0) usleep(10000);
  MPI_Barrier(MPI_COMM_WORLD);
  const char* leave = getenv("LEAVE");
  if (leave != NULL && *leave != 0) _exit(0);
  MPI_Finalize();
  return 0;
}

/* The smallest program in C: every rank learns the sum of all ranks.
 *
 *   $ cc hello.c $(dlaunch --cflags --libs) -o hello-c
 *   $ dlaunch --nproc 4 ./hello-c
 *   [0] rank 0 of 4: 6
 *   [1] rank 1 of 4: 6
 *   [2] rank 2 of 4: 6
 *   [3] rank 3 of 4: 6
 */
#include <stdio.h>

#include <dlaunch/ring.h>

int main(void) {
  dl_comm* comm;
  if (dl_init(NULL, NULL, &comm) != DL_OK) return fprintf(stderr, "%s\n", dl_last_error(NULL)), 1;
  float x = (float)dl_rank(comm);
  if (dl_all_reduce(comm, &x, &x, 1, DL_FLOAT32, DL_SUM) != DL_OK)
    return fprintf(stderr, "%s\n", dl_last_error(comm)), 1;
  printf("rank %d of %d: %g\n", dl_rank(comm), dl_size(comm), x);
  dl_finalize(comm);
  return 0;
}

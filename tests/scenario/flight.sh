# The report has the operation of libdlring in which a worker was killed, by whatever signal.
source "$SOURCE/tests/scenario/common.sh"

# Rank 1 never joins the others' barrier: it is killed while it waits for a message, rank 0 while it
# waits in the barrier.
cat > worker.c <<'C'
#include <dlaunch/ring.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void die(int s) { (void)s; kill(getpid(), SIGKILL); }
int main(int argc, char** argv) {
  dl_comm* comm = NULL;
  float x[7] = {0};
  int rank = atoi(getenv("RANK"));
  if (argc < 2 || dl_init(NULL, NULL, &comm) != DL_OK) return 2;
  for (int i = 0; i < 70; ++i) {
    if (dl_all_reduce(comm, x, x, 7, DL_FLOAT32, DL_MAX) != DL_OK) return 3;
  }
  if (rank == atoi(argv[1])) {
    signal(SIGALRM, die);
    ualarm(900000, 0);
  }
  return rank == 1 ? dl_recv(comm, x, 1, DL_FLOAT32, 0, 9) : dl_barrier(comm);
}
C
cc worker.c -I"$SOURCE/ring/include" -L"$BUILD/ring" -ldlring -Wl,-rpath,"$BUILD/ring" -o worker 2>cc.log ||
  fail "worker.c: $(cat cc.log)"
run dlaunch --nproc 2 ./worker 0; expect_code 137
expect_err 'rank 0 .* failed first: killed by SIGKILL'
expect_err 'it was in barrier #71 for ([1-9][0-9]{2}(\.[0-9])? ms|[0-9.]+ s)'
run dlaunch --nproc 2 --error-file e.json ./worker 1; expect_code 137
expect_err 'it was in recv from rank 0 \(tag 9, count 1, float\) for'
python3 - <<'P' || fail "the operations in the JSON: $(cat e.json)"
import json
last = json.load(open("e.json"))["root_cause"]["last_operations"]
assert [o["operation"] for o in last[:-1]] == [f"all_reduce #{n} (count 7, float, max)" for n in range(64, 71)], last
assert last[0]["state"] == "done" and last[-1]["state"] == "running", last
P

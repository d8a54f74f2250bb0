/* The header is C11 by itself, and a C program links to the library and uses it, alone. */
#include <stdio.h>
#include <string.h>

#include <dlaunch/outer.h>
#include <dlaunch/ring.h>

static int failures;

static void expect(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "failed: %s\n", what);
  ++failures;
}
#define EXPECT(condition) expect((condition), #condition)

int main(void) {
  dl_options options;
  dl_options_init(&options);
  EXPECT(options.struct_size == sizeof options);
  options.rank = 0;
  options.size = 1;
  dl_comm* comm = NULL;
  EXPECT(dl_init(NULL, &options, &comm) == DL_OK);
  EXPECT(dl_rank(comm) == 0 && dl_size(comm) == 1);
  EXPECT(strcmp(dl_transport(comm), "self") == 0);

  const double in[2] = {1.5, 2.5};
  double out[2] = {0, 0};
  EXPECT(dl_all_reduce(comm, in, out, 2, DL_FLOAT64, DL_AVG) == DL_OK && out[1] == 2.5);
  EXPECT(dl_reduce_scatter(comm, in, out, 1, DL_FLOAT64, DL_MIN) == DL_OK && out[0] == 1.5);
  EXPECT(dl_all_gather(comm, in, out, 2, DL_FLOAT64) == DL_OK);
  EXPECT(dl_broadcast(comm, out, 2, DL_FLOAT64, 0) == DL_OK);
  dl_some_options some;
  dl_some_options_init(&some);
  some.need = 1;
  int given = 0;
  dl_fate fate = DL_FATE_NONE;
  EXPECT(dl_all_reduce_some(comm, in, out, 2, DL_FLOAT64, DL_AVG, &some, &given, &fate) == DL_OK);
  EXPECT(out[1] == 2.5 && given == 1 && fate == DL_FATE_IN && dl_some_behind(comm) == 0);
  EXPECT(dl_barrier(comm) == DL_OK);
  out[1] = 0;
  dl_request* batch = NULL;
  EXPECT(dl_batch_start(comm) == DL_OK);
  EXPECT(dl_all_reduce(comm, in, out, 2, DL_FLOAT64, DL_SUM) == DL_OK && out[1] == 0);
  EXPECT(dl_ibatch_end(comm, &batch) == DL_OK && dl_wait(&batch) == DL_OK && out[1] == 2.5);
  dl_persistent* often = NULL;
  EXPECT(dl_all_gather_init(comm, in, out, 1, DL_FLOAT64, &often) == DL_OK);
  out[0] = 0;
  EXPECT(dl_persistent_run(often) == DL_OK && out[0] == 1.5);
  dl_persistent_free(often);
  dl_batch_drop(comm);
  EXPECT(strcmp(dl_last_error(comm), "") == 0);
  EXPECT(dl_send(comm, in, 2, DL_FLOAT64, 0, 0) == DL_ERR_INVALID);
  EXPECT(dl_recv(comm, out, 2, DL_FLOAT64, 1, 0) == DL_ERR_INVALID);
  EXPECT(strcmp(dl_last_error(comm), "recv: peer 1 is not another rank") == 0);
  EXPECT(dl_peer_lost(comm) == -1);

  float w[2] = {1, 2};
  float* const tensors[1] = {w};
  const size_t counts[1] = {2};
  dl_outer_options local;
  dl_outer_options_init(&local);
  EXPECT(local.struct_size == sizeof local && local.nesterov == 1);
  local.inner_steps = 1;
  dl_outer* outer = NULL;
  EXPECT(dl_outer_new(comm, &local, 1, tensors, counts, &outer) == DL_OK);
  w[0] = 0;
  EXPECT(dl_outer_due(outer) == DL_OUTER_CHANGES && dl_outer_step(outer) == DL_OK &&
         dl_outer_steps(outer) == 1);
  EXPECT(w[0] < 0 && w[1] == 2); /* 1 - 0.7 * (1 + 0.9 * 1) */
  dl_outer_free(outer);
  dl_abort(comm);
  EXPECT(dl_barrier(comm) == DL_ERR_ABORTED);
  dl_finalize(comm);

  EXPECT(dl_dtype_bytes(DL_BFLOAT16) == 2 && dl_dtype_bytes((dl_dtype)99) == 0);
  EXPECT(strcmp(dl_result_name(DL_ERR_PEER_LOST), "DL_ERR_PEER_LOST") == 0);
  EXPECT(strlen(dl_version()) > 0);
  EXPECT(dl_heartbeat() == 0);
  const dl_value loss = {"loss", 1.5};
  EXPECT(dl_report_progress(1, 10, &loss, 1) == 0 && dl_report_due(10, 10) == 0);
  return failures > 0;
}

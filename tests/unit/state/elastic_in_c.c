/* The headers are C, and a state works in a world of one without a launcher. */
#include <stdio.h>
#include <string.h>

#include <dlaunch/elastic.h>

#define EXPECT(condition)                                               \
  do {                                                                  \
    if (!(condition)) {                                                 \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition,        \
              state != NULL ? dl_state_last_error(state) : "no state"); \
      return 1;                                                         \
    }                                                                   \
  } while (0)

struct model {
  double w[4];
  int steps;
};

static dl_result step(void* user, int* more) {
  struct model* model = user;
  if (model->steps == 5) {
    *more = 0;
    return DL_OK;
  }
  model->w[0] += 1;
  ++model->steps;
  return DL_OK;
}

int main(void) {
  dl_comm* comm = NULL;
  dl_state* state = NULL;
  dl_sampler* sampler = NULL;
  dl_options options;
  dl_state_options state_options;
  struct model model;
  const uint32_t* indices = NULL;
  size_t count = 0, global = 0;
  memset(&model, 0, sizeof model);
  dl_options_init(&options);
  options.rank = 0;
  options.size = 1;
  EXPECT(dl_init("env://", &options, &comm) == DL_OK);
  EXPECT(strcmp(dl_state_last_error(NULL), "") == 0);
  EXPECT(dl_state_new(NULL, NULL, &state) == DL_ERR_INVALID);
  EXPECT(strcmp(dl_state_last_error(NULL), "the communicator is null") == 0);
  memset(&state_options, 0, sizeof state_options);
  EXPECT(dl_state_new(comm, &state_options, &state) == DL_ERR_INVALID);
  EXPECT(strstr(dl_state_last_error(NULL), "not set up by dl_state_options_init()") != NULL);
  dl_state_options_init(&state_options);
  state_options.commit_every = 0;
  EXPECT(dl_state_new(comm, &state_options, &state) == DL_ERR_INVALID);
  EXPECT(strcmp(dl_state_last_error(NULL), "commit_every is less than 1") == 0);
  EXPECT(dl_state_commit(NULL, 0) == DL_ERR_INVALID);
  EXPECT(strcmp(dl_state_last_error(NULL), "the state is null") == 0);
  EXPECT(dl_state_new(comm, NULL, &state) == DL_OK);
  EXPECT(dl_state_commit(state, 0) == DL_ERR_INVALID);
  EXPECT(strstr(dl_state_last_error(state), "needs a sync") != NULL);
  EXPECT(dl_state_replicated(state, "model", &model, sizeof model) == DL_OK);
  EXPECT(dl_state_replicated(state, "model", &model, sizeof model) == DL_ERR_INVALID);
  EXPECT(dl_state_replicated(state, "", &model, sizeof model) == DL_ERR_INVALID);
  EXPECT(dl_sampler_new(state, "samples", 0, 4, 1, &sampler) == DL_ERR_INVALID);
  EXPECT(dl_sampler_new(state, "samples", 10, 4, 1, &sampler) == DL_OK);
  EXPECT(dl_run_elastic(state, step, &model) == DL_OK);
  EXPECT(model.steps == 5 && model.w[0] == 5);
  EXPECT(dl_state_committed(state).number == 5);
  EXPECT(dl_sampler_next(sampler, &indices, &count, &global) == DL_OK);
  EXPECT(count == 4 && global == 4 && indices[0] < 10 && dl_sampler_position(sampler) == 4);
  model.w[0] = 17;
  EXPECT(dl_state_restore(state) == DL_OK);
  EXPECT(model.w[0] == 5 && dl_sampler_position(sampler) == 0);
  EXPECT(dl_state_commit(state, 2) == DL_ERR_INVALID);
  EXPECT(dl_state_recover(state) == DL_ERR_UNSUPPORTED);
  EXPECT(dl_state_replicated(state, "late", &model, sizeof model) == DL_ERR_INVALID);
  dl_state_free(state);
  dl_sampler_free(sampler);
  dl_finalize(comm);
  return 0;
}

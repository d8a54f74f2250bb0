/* libdlelastic: training state that outlives its processes. C API, stable ABI.
 *
 * A program registers the memory of its state and commits it after each step. When ranks die, are
 * replaced, join or leave, the program continues from the last commit. It needs a launcher that
 * forms rounds: numbered sets of ranks. libdlring (<dlaunch/ring.h>) connects the ranks of a round.
 *
 *   dl_state_new(comm, NULL, &state);                     comm: dl_init() with options.elastic
 *   dl_state_replicated(state, "w", w, sizeof w);
 *   dl_state_replicated(state, "step", &step, sizeof step);
 *   dl_run_elastic(state, one_step, &model);              commits after each step
 *   dl_state_free(state);
 *
 * Each rank keeps its last two commits in its own memory, and room for a third if it writes
 * snapshots. The members of a round take the newest commit that one of them holds. Newcomers, and
 * ranks that are behind, get it from all holders at once. So the program repeats at most the step
 * that was under way. If only dead ranks had the newest commit, the program makes it again from the
 * commit before.
 *
 * You register GPU memory like host memory. A commit is still a copy in host memory: it takes no
 * room on the GPU, ranks can send, check and write it like any other, and it survives the GPU. It
 * costs a copy from the GPU, unless it is in place. The copy comes after the work in the stream of
 * dl_set_stream().
 * Newcomers get replicated memory from a holder's GPU, by a broadcast to all ranks, if the same
 * buffers are on GPUs on all ranks and all ranks have NCCL (dl_gpu_transport(); a sync may create
 * NCCL's communicator). Each newcomer makes its own commit of it and checks that. Sharded memory
 * goes through the host; with dl_set_backend("cpu") all memory does.
 *
 * Registered memory belongs to the caller and must not move. Only one thread at a time may use a
 * state: the thread that uses the communicator. All ranks of the round must make the calls marked
 * collective, in the same order as their collectives on the communicator.
 *
 * A call returns DL_OK or an error code of <dlaunch/ring.h>; dl_state_last_error() then has the
 * sentence for people. DL_ERR_PEER_LOST or DL_ERR_CORRUPT from a collective call means that the
 * round is broken: dl_state_recover() continues in the next. After any other error the program has
 * to end.
 */
#ifndef DLAUNCH_ELASTIC_H
#define DLAUNCH_ELASTIC_H

#include "dlaunch/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dl_state dl_state;

/* A commit: the number of commits before it, and the round that made it. The commit of the later
 * round is newer; within a round, the one with the higher number. So a commit that a rank made
 * alone in an abandoned round never replaces the commits with which the others continued.
 * {0, 0}: none. */
typedef struct dl_state_version {
  uint64_t round;
  uint64_t number;
} dl_state_version;

/* Set every field by dl_state_options_init() first. */
typedef struct dl_state_options {
  size_t struct_size; /* sizeof(dl_state_options) */
  int commit_every;   /* only each n-th call of dl_state_commit() makes a commit, so the program
                         may have to repeat n steps; default 1 */
  int shard_replicas; /* how many other ranks keep a copy of a rank's sharded memory; this number of
                         neighbours may die at once; default 1 */
  int in_place;       /* 1: a commit copies nothing, see dl_state_update(); default 0 */
} dl_state_options;

DL_API void dl_state_options_init(dl_state_options* options);

/* options may be NULL. comm stays the caller's and must outlive the state. */
DL_API dl_result dl_state_new(dl_comm* comm, const dl_state_options* options, dl_state** state);
/* Waits until a snapshot that is being written is complete. In a forked child, which cannot use the
 * state, it does nothing. Not collective. NULL is allowed. */
DL_API void dl_state_free(dl_state* state);

/* -- Memory of the state. Register it before the first dl_state_sync(). All ranks register the same
 * names in the same order. Names are unique and have 1 to 200 bytes. */

/* Memory whose content is the same on all ranks at each commit. */
DL_API dl_result dl_state_replicated(dl_state* state, const char* name, void* at, size_t bytes);

/* The sharded memory of all ranks of an earlier round. */
typedef struct dl_shards {
  int size;              /* the number of ranks of that round */
  const void* const* at; /* by rank, aligned to 16; NULL: empty, or not here (see dl_reshard) */
  const size_t* bytes;   /* by rank; 0 where at is NULL */
} dl_shards;
/* Makes this rank's part from the old parts. It fills new or old memory, and sets the address and
 * size of the part from now on. The old parts are always in host memory. If the number of ranks has
 * changed, it gets all old parts. If it has not, but this rank's memory has another size than the
 * part that it takes over, it gets only that part. Any result but DL_OK ends the sync on all ranks.
 * The old parts are valid until it returns. */
typedef dl_result (*dl_reshard)(void* user, const dl_shards* old, int rank, int size, void** at,
                                size_t* bytes);
/* Memory that differs between ranks. Each commit also sends it to the next ranks. element_bytes is
 * the size of one element, equal on all ranks. Without a reshard function, a round with another
 * number of ranks is DL_ERR_UNSUPPORTED. While the number changes, each rank briefly holds all
 * parts. */
DL_API dl_result dl_state_sharded(dl_state* state, const char* name, void* at, size_t bytes,
                                  size_t element_bytes, dl_reshard reshard, void* user);
/* After the first sync: sets the address and size of this rank's sharded memory of that name, from
 * the next commit on. Not collective: the next commit informs the ranks that keep copies of it. If
 * a later sync or restore takes a commit of another size, it calls the reshard function. */
DL_API dl_result dl_state_place_shard(dl_state* state, const char* name, void* at, size_t bytes);

/* From now on every n-th commit is also written to files in `folder`, which is created if needed. A
 * thread of its own writes them from the committed copy, so a commit never waits for the disk. If a
 * snapshot is due while another is being written, it is left out. Rank 0 writes the replicated
 * memory; each rank writes its shard. `keep` (>= 1) older snapshots that all ranks have written
 * remain beside the newest. A file gets its name only when it is complete and checked. A failure,
 * such as a full disk, is printed once on stderr, and training continues. Snapshots are read when
 * no member of a round holds a commit: the newest snapshot that is complete and intact. Damaged
 * snapshots are reported and left alone. A folder is for one job; its hosts may share one, or each
 * have their own. */
DL_API dl_result dl_state_snapshots(dl_state* state, const char* folder, int every, int keep);

typedef struct dl_change {
  uint64_t round; /* the new one */
  int old_rank, old_size, rank, size;
} dl_change;
/* Called at the end of each dl_state_recover(), when the state is complete: for learning rates,
 * data, groups. You may register several functions; they are called in the order of registration.
 */
typedef void (*dl_on_change)(void* user, const dl_change* change);
DL_API dl_result dl_state_on_change(dl_state* state, dl_on_change on_change, void* user);

/* -- The life of a state. */

/* Collective; before the first step. All ranks agree on a commit, and then have it in their memory:
 * the newest commit that a member holds, else the newest snapshot, else the start. The start is
 * rank 0's replicated memory and each rank's own shard. Each piece of 4 MiB is checked; if it is
 * damaged, the rank fetches it again from another rank. DL_ERR_MISMATCH: two ranks have registered
 * different memory; the text names both. DL_ERR_IO: a shard or all snapshots are lost. */
DL_API dl_result dl_state_sync(dl_state* state);

/* A flag for dl_state_commit(): since the last commit, an all_reduce, all_gather, reduce_scatter,
 * all_to_all or barrier on the communicator has ended on all ranks. */
#define DL_STATE_SPANNED 1
/* Collective. The registered memory becomes the newest commit of this rank. This takes one memcpy,
 * and with shards a message to each neighbour.
 * No rank may commit a step that another rank cannot have reached, so that commits of two ranks
 * differ by at most one. Therefore a commit makes a small all_reduce, which also lets all ranks
 * leave a round at the same commit. With the flag DL_STATE_SPANNED it makes none, unless there is
 * sharded memory. The last commit of a round without a loss also gives every rank the shards of all
 * others, so that any number of ranks can leave. After an error nothing has been committed, except
 * perhaps that last commit of the round; dl_state_recover() then finds it. */
DL_API dl_result dl_state_commit(dl_state* state, int flags);

/* Collective. For states with options.in_place; for others it does nothing. From this call to the
 * commit the step changes the registered memory, and does nothing that another rank's death can
 * break:
 *
 *   gradient(w, g);
 *   all_reduce(g);
 *   dl_state_update(state);
 *   apply(w, g);
 *   dl_state_commit(state, 0);
 *
 * Outside these two calls the registered memory must not change: it is the last commit itself. It
 * is copied only when a rank has died, for a snapshot, or for a newcomer. So a commit costs
 * nothing; this call makes the small all_reduce instead. If all ranks lose a peer within an update,
 * and none has reached its commit, they fall back to the last copy. Not allowed with sharded memory
 * or with commit_every. */
DL_API dl_result dl_state_update(dl_state* state);

/* Copies the last commit back into the registered memory. Not collective. With options.in_place the
 * memory already is the last commit; after dl_state_update() the result is DL_ERR_INVALID. */
DL_API dl_result dl_state_restore(dl_state* state);

/* Collective; after DL_ERR_PEER_LOST or DL_ERR_CORRUPT, or when dl_state_round_over() is 1. Leaves
 * the round, waits for the next, joins it and syncs; then calls the on_change functions. Rank and
 * size of the communicator may change. If the new round breaks, too, it tries again. Free all
 * requests and groups of the communicator before. DL_ERR_PEER_LOST: the job is over.
 * DL_ERR_UNSUPPORTED: there is no elastic launcher. DL_ERR_ABORTED: this rank has corrupt data, and
 * its process must end. */
DL_API dl_result dl_state_recover(dl_state* state);

/* Collective; after the last step. Commits the steps since the last commit, writes a last snapshot,
 * and waits for all ranks, so that no rank leaves while another may still need its memory. */
DL_API dl_result dl_state_finish(dl_state* state);

/* 1: the launcher wants another round, and all ranks knew it at the last commit: call
 * dl_state_recover() now. After a commit with DL_STATE_SPANNED and without sharded memory, only
 * this rank knew it: others may begin their next step, and lose this rank in it. */
DL_API int dl_state_round_over(const dl_state* state);
DL_API dl_state_version dl_state_committed(const dl_state* state);
/* "" if nothing failed. Valid until the next call. With state NULL: the error of this thread's last
 * call without a state, such as dl_state_new(). */
DL_API const char* dl_state_last_error(const dl_state* state);

/* The whole life of a state: syncs, then calls step() and commits until step() sets *more to 0 on
 * all ranks, then finishes. It recovers when step() or a commit returns DL_ERR_PEER_LOST or
 * DL_ERR_CORRUPT, and when the round is over. It returns any other error of step(). A step must
 * depend on the registered memory only, and choose its samples by the communicator's current rank
 * and size. */
typedef dl_result (*dl_step)(void* user, int* more); /* *more is 1 before the call */
DL_API dl_result dl_run_elastic(dl_state* state, dl_step step, void* user);

/* -- Samples. A sampler goes through a data set epoch by epoch in a random order, one global batch
 * a step. Its position is part of the state: after any failure or change of size, each sample of an
 * epoch has been used in exactly one committed step. */
typedef struct dl_sampler dl_sampler;
/* Registers the sampler's position under `name`. samples: 1 to 2^32-1; batch: the batch of all
 * ranks together. The order of an epoch depends on seed and epoch only. All arguments must be equal
 * on all ranks, else dl_state_sync() is DL_ERR_MISMATCH. If a snapshot comes from a larger data set
 * and its epoch has already used `samples` or more, the next epoch begins. The sampler must outlive
 * the last use of the state. Free it afterwards. */
DL_API dl_result dl_sampler_new(dl_state* state, const char* name, uint64_t samples, uint64_t batch,
                                uint64_t seed, dl_sampler** sampler);
DL_API void dl_sampler_free(dl_sampler* sampler);
/* The next global batch. *indices[0..*count) is this rank's part, which may be empty. *global is
 * the size of the global batch: `batch`, or less at the end of an epoch. Valid until the next call.
 */
DL_API dl_result dl_sampler_next(dl_sampler* sampler, const uint32_t** indices, size_t* count,
                                 size_t* global);
/* The sampler cuts each batch evenly into virtual shards (see dl_all_reduce_shards), and a rank's
 * part of a batch is that of its shards, those of dl_shard_range(). Call it once, before the first
 * dl_state_sync(). */
DL_API dl_result dl_sampler_set_shards(dl_sampler* sampler, int shards);
/* The part of the last batch of dl_sampler_next() that belongs to this virtual shard, of any rank.
 * It may be empty. Valid until the next batch. */
DL_API dl_result dl_sampler_shard(const dl_sampler* sampler, int shard, const uint32_t** indices,
                                  size_t* count);
/* The epoch of the next batch, from 0, and the number of its samples that have been used. */
DL_API uint64_t dl_sampler_epoch(const dl_sampler* sampler);
DL_API uint64_t dl_sampler_position(const dl_sampler* sampler);

/* This rank's part [*first, *last) of `count` items, divided evenly. All calls above divide this
 * way, except for a sampler with virtual shards. */
DL_API void dl_even_share(uint64_t count, int rank, int size, uint64_t* first, uint64_t* last);

#ifdef __cplusplus
}
#endif

#endif /* DLAUNCH_ELASTIC_H */

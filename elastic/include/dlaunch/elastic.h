/* libdlelastic: training state that outlives its processes. C API, stable ABI.
 *
 * A program registers the memory that makes up its state, commits it after each step, and goes on
 * from the last commit when ranks die, are replaced, or come and go. It needs a launcher that forms
 * rounds: numbered sets of ranks, each wired together by libdlring (<dlaunch/ring.h>).
 *
 *   dl_state_new(comm, NULL, &state);                     comm: dl_init() with options.elastic
 *   dl_state_replicated(state, "w", w, sizeof w);
 *   dl_state_replicated(state, "step", &step, sizeof step);
 *   dl_run_elastic(state, one_step, &model);              commits after each step
 *   dl_state_free(state);
 *
 * What is kept: each rank has its last two commits in its own memory, and room for a third where
 * snapshots are made. The members of a round take the newest commit that one of them holds;
 * newcomers and laggards get it from all who hold it at once. So at most the step that was under
 * way is done again. A commit that only the dead had made is not missed: it is made again from the
 * one before it.
 *
 * Memory of a GPU is registered like the host's. A commit is a copy in the host's memory all the
 * same: it takes no room on the GPU, others can be given it, it is checked and written to disk like
 * any, and it is there when the GPU is not any more. What it costs is the way from the GPU, unless
 * it is in place. Copies come after what is in the stream of dl_set_stream().
 * Newcomers get what is replicated from the GPU of one who holds it, by a broadcast to all, where
 * the same buffers are on GPUs on all ranks and these have NCCL (dl_gpu_transport(); a sync may be
 * what makes NCCL's communicator). They make their own commit of it and check that. What is sharded
 * comes through the host, and with dl_set_backend("cpu") everything does.
 *
 * Memory that is registered belongs to the caller and must stay where it is. One thread at a time,
 * the one that uses the communicator. Calls marked collective must be made by all ranks of the
 * round, in the same order as their collectives on the communicator.
 *
 * A call returns DL_OK or an error code as in <dlaunch/ring.h>; dl_state_last_error() then has the
 * sentence for people. DL_ERR_PEER_LOST from a collective call means that the round is broken:
 * dl_state_recover() goes on in the next. All other errors are for the program to end with.
 */
#ifndef DLAUNCH_ELASTIC_H
#define DLAUNCH_ELASTIC_H

#include "dlaunch/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dl_state dl_state;

/* A commit: the number of commits before it, and the round in which it was made. Of two the one of
 * the later round is newer, then the one with the higher number: so what a rank committed alone in
 * a round that was given up never wins over what the others went on with. {0, 0}: none. */
typedef struct dl_state_version {
  uint64_t round;
  uint64_t number;
} dl_state_version;

/* Set every field by dl_state_options_init() first. */
typedef struct dl_state_options {
  size_t struct_size; /* sizeof(dl_state_options) */
  int commit_every;   /* every n-th call of dl_state_commit() makes a commit, the others nothing: n
                         steps may then be done again; 1 */
  int shard_replicas; /* ranks that keep a copy of each other rank's sharded memory: so many
                         neighbours may die at once; 1 */
  int in_place;       /* 1: a commit copies nothing, see dl_state_update(); 0 */
} dl_state_options;

DL_API void dl_state_options_init(dl_state_options* options);

/* options may be NULL. comm stays the caller's and must outlive the state. */
DL_API dl_result dl_state_new(dl_comm* comm, const dl_state_options* options, dl_state** state);
/* Waits for a snapshot that is being written; in a forked child, where a state is of no use, it
 * does nothing. Not collective. NULL is allowed. */
DL_API void dl_state_free(dl_state* state);

/* -- What belongs to the state: before the first dl_state_sync(). All ranks register the same names
 * in the same order; names are unique, of 1 to 200 bytes. */

/* Memory whose content is the same on all ranks at each commit. */
DL_API dl_result dl_state_replicated(dl_state* state, const char* name, void* at, size_t bytes);

/* The sharded memory of all ranks of an earlier round. */
typedef struct dl_shards {
  int size;              /* ranks it was cut for */
  const void* const* at; /* by rank, aligned to 16; NULL: not here (see dl_reshard), or empty */
  const size_t* bytes;   /* by rank; 0 where at is NULL */
} dl_shards;
/* Makes this rank's part from the old ones: fills memory, new or old, and says where it is from now
 * on and how large. The old parts are in the host's memory, whatever the new one is in. Called when
 * the number of ranks has changed, with all old parts; and when it has not, but this rank's memory
 * has another size than the part it takes over, with that part. Anything but DL_OK ends the sync on
 * all ranks. The old parts may be read until it returns. */
typedef dl_result (*dl_reshard)(void* user, const dl_shards* old, int rank, int size, void** at,
                                size_t* bytes);
/* Memory that differs per rank; each commit also gives it to the next ranks. element_bytes: of what
 * it consists, the same on all ranks. Without a reshard function a round with another number of
 * ranks is DL_ERR_UNSUPPORTED. When the number changes each rank holds all parts for a moment. */
DL_API dl_result dl_state_sharded(dl_state* state, const char* name, void* at, size_t bytes,
                                  size_t element_bytes, dl_reshard reshard, void* user);
/* After the first sync: this rank's sharded memory of that name is here from now on, and so large,
 * for commits that follow. Not collective: the next commit tells the ranks that keep copies of it.
 * A later sync or restore of a commit of another size goes through the reshard function. */
DL_API dl_result dl_state_place_shard(dl_state* state, const char* name, void* at, size_t bytes);

/* From now on every n-th commit is also written to files in `folder`, which is made if need be, by
 * a thread of its own from the committed copy: a commit never waits for the disk, and a snapshot
 * that comes due while another is being written is left out. Rank 0 writes what is replicated, each
 * rank its shard. `keep` (>= 1) older ones are left beside the newest. Each file is complete and
 * checked or does not exist under its name. A failure, such as a full disk, is said once on stderr,
 * and training goes on.
 * They are read when no member of a round holds a commit: the newest of which all is there and
 * intact. Damaged ones are said and left alone. A folder is for one job; its hosts may share one or
 * have one each. */
DL_API dl_result dl_state_snapshots(dl_state* state, const char* folder, int every, int keep);

typedef struct dl_change {
  uint64_t round; /* the new one */
  int old_rank, old_size, rank, size;
} dl_change;
/* Called at the end of each dl_state_recover(), when the state is there: for learning rates, data,
 * groups. May be set several times; they are called in that order. */
typedef void (*dl_on_change)(void* user, const dl_change* change);
DL_API dl_result dl_state_on_change(dl_state* state, dl_on_change on_change, void* user);

/* -- The life of a state. */

/* Collective; before the first step. All ranks agree on a commit and have it in their memory
 * afterwards: the newest that a member holds, else the newest snapshot, else the start: rank 0's
 * replicated memory and everybody's own shard. Each piece of 4 MiB is checked, and fetched again
 * from another rank if it is damaged. DL_ERR_MISMATCH: two ranks have registered different memory;
 * the text names both. DL_ERR_IO: a shard or all snapshots are lost. */
DL_API dl_result dl_state_sync(dl_state* state);

/* A flag for dl_state_commit(): an all_reduce, all_gather, reduce_scatter, all_to_all or barrier on
 * the communicator has ended since the last commit, on all ranks. */
#define DL_STATE_SPANNED 1
/* Collective. The registered memory becomes the newest commit of this rank: one memcpy, and with
 * shards a message to each neighbour. Nobody may commit a step that another rank cannot have
 * reached, so that commits of two ranks differ by at most one: for that it makes a small
 * all_reduce, which also lets all ranks leave a round at the same commit, unless the flag says that
 * the step has spanned all ranks anyhow. With sharded memory it always makes that all_reduce. The
 * last commit of a round in which no rank was lost also gives every rank the shards of all others,
 * so that any number of ranks can leave. After an error nothing has been committed, or that last
 * commit has, and dl_state_recover() finds it. */
DL_API dl_result dl_state_commit(dl_state* state, int flags);

/* Collective; for states with options.in_place, on others it does nothing. From here to the commit
 * the step changes the registered memory, and does nothing that another rank's death can break:
 *
 *   gradient(w, g);
 *   all_reduce(g);
 *   dl_state_update(state);
 *   apply(w, g);
 *   dl_state_commit(state, 0);
 *
 * Outside of that the registered memory must not be changed: it is the last commit itself, and is
 * copied only when a rank has died, for a snapshot, or for who comes anew. So a commit costs
 * nothing; this call makes the small all_reduce instead. All ranks that have lost a peer within an
 * update, with none that has got to its commit, fall back to the last copy there is. Not for
 * sharded memory, nor with commit_every. */
DL_API dl_result dl_state_update(dl_state* state);

/* Puts the last commit back into the registered memory. Not collective. In place it is there,
 * unless an update has begun, which is DL_ERR_INVALID. */
DL_API dl_result dl_state_restore(dl_state* state);

/* Collective; after DL_ERR_PEER_LOST, or when dl_state_round_over(). Leaves the round, waits for
 * the next, joins it (rank and size of the communicator may be others then) and syncs, again if
 * that round breaks, too; then tells the on_change functions. Requests and groups of the
 * communicator must have been freed before. DL_ERR_PEER_LOST: the job is over. DL_ERR_UNSUPPORTED:
 * there is no elastic launcher. */
DL_API dl_result dl_state_recover(dl_state* state);

/* Collective; after the last step. Commits what has not been, sees that a last snapshot is written,
 * and waits for all ranks: nobody leaves while another may still need its memory. */
DL_API dl_result dl_state_finish(dl_state* state);

/* 1: the launcher wants another round, and all ranks knew it at the last commit, which is the
 * moment to call dl_state_recover(). After one with DL_STATE_SPANNED, unless there is sharded
 * memory, only this rank knew it: others may go on with their step, and lose this one in it. */
DL_API int dl_state_round_over(const dl_state* state);
DL_API dl_state_version dl_state_committed(const dl_state* state);
/* "" if nothing failed. Valid until the next call. state NULL: what this thread's last call without
 * a state failed for, dl_state_new() among them. */
DL_API const char* dl_state_last_error(const dl_state* state);

/* All of it: syncs, and then calls step() and commits until *more stays 0 on all ranks; recovers
 * when step() or a commit returns DL_ERR_PEER_LOST, and when the round is over; finishes. Any other
 * error of step() ends it and is returned. A step must start from the registered memory alone, and
 * take all its samples by rank and size of the communicator as they are now. */
typedef dl_result (*dl_step)(void* user, int* more); /* *more is 1 before */
DL_API dl_result dl_run_elastic(dl_state* state, dl_step step, void* user);

/* -- Samples. Goes through a data set epoch by epoch in a random order, one global batch a step.
 * Its position is part of the state: after any failure or change of size each sample of an epoch
 * has been used in exactly one committed step. */
typedef struct dl_sampler dl_sampler;
/* Registers its position under `name`. samples: 1 to 2^32-1; batch: of all ranks together. The
 * order of an epoch depends on seed and epoch only. All are the same on all ranks, else
 * dl_state_sync() is DL_ERR_MISMATCH. After a snapshot in whose epoch at least so many samples have
 * been taken, for there were more, the next epoch begins. The sampler must outlive the last use of
 * the state, and be freed. */
DL_API dl_result dl_sampler_new(dl_state* state, const char* name, uint64_t samples, uint64_t batch,
                                uint64_t seed, dl_sampler** sampler);
DL_API void dl_sampler_free(dl_sampler* sampler);
/* The next global batch, of which *indices[0..*count) are this rank's, perhaps none; *global counts
 * those of all ranks: `batch`, less at the end of an epoch. Valid until the next call. */
DL_API dl_result dl_sampler_next(dl_sampler* sampler, const uint32_t** indices, size_t* count,
                                 size_t* global);
/* The pass over the data that the next batch belongs to, from 0, and how many of its samples have
 * been taken. */
DL_API uint64_t dl_sampler_epoch(const dl_sampler* sampler);
DL_API uint64_t dl_sampler_position(const dl_sampler* sampler);

/* This rank's part [*first, *last) of `count` things cut evenly: the same cut everywhere above. */
DL_API void dl_even_share(uint64_t count, int rank, int size, uint64_t* first, uint64_t* last);

#ifdef __cplusplus
}
#endif

#endif /* DLAUNCH_ELASTIC_H */

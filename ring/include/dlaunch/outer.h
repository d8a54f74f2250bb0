/* Local training with an outer optimizer, for networks that are slow. C API, stable ABI, part of
 * libdlring.
 *
 * Each rank trains its own copy of the parameters with its own optimizer, the inner one. After
 * every `inner_steps` steps the ranks average how far their parameters have moved, and an outer
 * optimizer applies the average to the parameters that all ranks share, the anchor:
 *
 *   gradient = average over ranks of (anchor - parameters)
 *   anchor   = outer SGD with momentum (anchor, gradient)
 *   parameters = anchor
 *
 * So the ranks communicate inner_steps times less often than in data-parallel training.
 *   LocalSGD (Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019): learning rate
 *     1, no momentum; the parameters become their average.
 *   DiLoCo (Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
 *     arXiv 2311.08105): learning rate 0.7, Nesterov momentum 0.9; the default.
 *   Streaming DiLoCo (Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv
 *     2501.18512): fragments of the parameters in turn, averages in the background that are applied
 *     `delay` steps later, few bits for each value.
 *
 *   dl_outer_new(comm, &options, 2, tensors, counts, &outer);  parameters equal on all ranks
 *   for each step:
 *     gradient, and a step of the inner optimizer, on this rank alone
 *     dl_outer_step(outer);
 *   dl_outer_finish(outer);                                    equal on all ranks again
 *   dl_outer_free(outer);
 *
 * The result depends only on the parameters, the data and the options: not on transports, hosts or
 * timing. A program that keeps dl_outer_shared(), dl_outer_residual(), its parameters and its inner
 * optimizer continues from them bit for bit; see dl_outer_settle().
 *
 * Only one thread at a time may use an outer optimizer: that of the communicator. Errors are those
 * of the communicator's calls: dl_last_error(comm) has the text. After a failed average, of this
 * call or in the background, the state, the residuals and the parameters are undefined:
 * dl_outer_step(), dl_outer_finish() and dl_outer_settle() return the error again until the program
 * has restored all three and called dl_outer_restored().
 *
 * A value that is not finite on one rank is so in the average, and then on all ranks: check the
 * loss or the parameters before the step. What a program does not give, such as the running
 * statistics of batch normalization, stays each rank's own.
 */
#ifndef DLAUNCH_OUTER_H
#define DLAUNCH_OUTER_H

#include "dlaunch/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dl_outer dl_outer;

/* Set every field by dl_outer_options_init() first. All ranks need the same options and counts; a
 * difference becomes DL_ERR_MISMATCH at an average. */
typedef struct dl_outer_options {
  size_t struct_size;   /* sizeof(dl_outer_options) */
  int inner_steps;      /* between two averages of a parameter; default 500 */
  double learning_rate; /* of the outer SGD; default 0.7 */
  double momentum;      /* of the outer SGD, from 0 to less than 1; default 0.9 */
  int nesterov;         /* 1: Nesterov momentum, as in PyTorch's SGD; default 1. Needs momentum */
  dl_codec codec;       /* how the averages travel, with error feedback; default DL_CODEC_NONE */
  int fragments;        /* parts of the parameters, which are averaged in turn, each after every
                           inner_steps steps: at most inner_steps; default 1 */
  int delay;            /* steps for which an average runs in the background before it is applied:
                           less than inner_steps; default 0: dl_outer_step() waits for it */
  double mixing; /* the share of a rank's own parameters that stays when an average is applied,
                    from 0 to less than 1; default 0. parameters = mixing * parameters +
                    (1 - mixing) * anchor */
  struct dl_sites* sites; /* averages are over these sites, <dlaunch/sites.h>, each with the mean of
                    its ranks, of one outer optimizer in a process; default NULL: over the ranks of
                    comm. With sites delay is at most inner_steps / fragments */
} dl_outer_options;

DL_API void dl_outer_options_init(dl_outer_options* options);

/* The parameters are float32 tensors in host memory, counts[i] elements at at[i], which stay there.
 * Their contents must be equal on all ranks (dl_broadcast_list()), or be restored before the first
 * step. options may be NULL. comm stays the caller's, and must outlive the outer optimizer. Not
 * collective. Two tensors may not share memory.
 *
 * It takes memory for four times the parameters: anchor, momentum, averages and residuals; two of
 * them only where momentum and codec need them. Each tensor begins at a multiple of 256 elements
 * there, so that tensors share no scale of a codec: many small tensors take more. Beside that the
 * communicator keeps room for the encoded values of the longest fragment, about twice. A state of
 * libdlelastic has its copies of all of it, and keeps another rank's residuals and parameters. */
DL_API dl_result dl_outer_new(dl_comm* comm, const dl_outer_options* options, size_t tensors,
                              float* const* at, const size_t* counts, dl_outer** outer);
/* Waits for averages in the background. Not collective. NULL is allowed. */
DL_API void dl_outer_free(dl_outer* outer);

/* After each step of the inner optimizer, on all ranks. Collective in the steps in which an average
 * is due. It reads or changes the parameters only if dl_outer_due() says so before. */
DL_API dl_result dl_outer_step(dl_outer* outer);
/* What the next dl_outer_step() does with the parameters; 0: nothing. The same on all ranks. */
#define DL_OUTER_READS 1   /* reads some of them */
#define DL_OUTER_CHANGES 2 /* changes some of them, and may read others */
DL_API int dl_outer_due(const dl_outer* outer);
/* The number of steps so far. */
DL_API uint64_t dl_outer_steps(const dl_outer* outer);
/* Averages all fragments now, and applies the result without mixing: the parameters are equal on
 * all ranks then. For the end of a training, or before an evaluation. Collective. With sites
 * dl_outer_steps() may be larger afterwards: the others were further, and the parameters are
 * theirs, see <dlaunch/sites.h>. */
DL_API dl_result dl_outer_finish(dl_outer* outer);

/* -- The state. */

/* The memory that is equal on all ranks after dl_outer_settle(): number of steps, anchor, momentum
 * and averages; for dl_state_replicated(), or a file. Its size depends on options and counts only.
 */
DL_API void dl_outer_shared(dl_outer* outer, void** at, size_t* bytes);
/* This rank's residuals of the codec; no bytes without one. For dl_state_sharded(). They lie behind
 * the memory of dl_outer_shared(), so that both can be saved as one. If the number of ranks has
 * changed since the last step, the next step begins with residuals of 0. */
DL_API void dl_outer_residual(dl_outer* outer, void** at, size_t* bytes);
/* Waits for averages in the background, and leaves them in the state: call it before a commit, or
 * before a copy of the state. They are applied when they would have been, also by another process
 * that has the state. A commit in a step without such averages does not wait. With the option
 * commit_every of a state only each n-th commit needs it: call it in the steps that commit, or the
 * averages do not overlap with steps. dl_outer_waits() says whether it would wait. Not collective.
 */
DL_API dl_result dl_outer_settle(dl_outer* outer);
/* 1: an average is in the background, perhaps done. */
DL_API int dl_outer_in_flight(const dl_outer* outer);
/* 1: an average in the background is not done, and dl_outer_settle() would wait. Those that are
 * done are in the state, and no longer in the background. */
DL_API int dl_outer_waits(dl_outer* outer);
/* The state's memory has been restored, by dl_state_sync(), dl_state_recover(), dl_state_restore()
 * or a copy: drops what is in the background, with its errors. Call it or dl_outer_settle() before
 * dl_state_restore() and before a copy into the memory, because an average in the background still
 * writes there. dl_state_recover() ends such averages itself.
 * DL_ERR_MISMATCH: the state is that of other options or counts; each later call says so, too. Not
 * collective. */
DL_API dl_result dl_outer_restored(dl_outer* outer);

#ifdef __cplusplus
}
#endif

#endif /* DLAUNCH_OUTER_H */

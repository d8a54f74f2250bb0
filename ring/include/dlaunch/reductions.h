/* libdlring: reductions with terms of their own: of virtual shards, in few bits, and of the ranks
 * that come in time. <dlaunch/ring.h> includes this file, and says what holds for all calls. Those
 * with an i run in the background. */
#ifndef DLAUNCH_REDUCTIONS_H
#define DLAUNCH_REDUCTIONS_H

#include "dlaunch/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Virtual shards: a reduction whose result does not depend on the number of ranks. The program cuts
 * the work of a step into a fixed number of shards, such as micro-batches. There may be more shards
 * than ranks. Each rank has the neighbouring shards of dl_shard_range(), which gives it other ones
 * when ranks come or go. The library reduces the values of all shards along a binary tree, and only
 * `shards` decides its form. So an elastic job that goes from 8 ranks to 6 and back to 8 computes
 * what 8 ranks compute, bit for bit, on any hosts and through any transport. (Of several NaNs any
 * one's payload may survive.)
 * in[i] has the values of shard first + i, `count` elements. out[j] = op over all shards of their
 * element j, on every rank; AVG divides by `shards`. `out` may be one of the in[i]; otherwise it
 * must not overlap them. Each node of the tree rounds floats of 8 and 16 bits. A sum of float16
 * that leaves its range is infinite, and one of FLOAT8_E4M3 is NaN, also within an average. If
 * there are more ranks than shards, some ranks have none, and give no values.
 * Cost: a rank sends up to 2 log2(shards) partial results. It sends one if each rank has one shard,
 * or if both numbers are powers of two; then the ranks of one host move as many bytes as in an
 * all_reduce. Several hosts with several ranks each move more. The library keeps memory for partial
 * results until the communicator ends. DL_ERR_UNSUPPORTED: a buffer is in the memory of a GPU (see
 * dl_copy). wire_codec does not apply. DL_ERR_MISMATCH: ranks gave different counts, types,
 * operations or numbers of shards. */
#define DL_MOST_SHARDS 65536
DL_API dl_result dl_all_reduce_shards(dl_comm* comm, int shards, const void* const* in, void* out,
                                      size_t count, dl_dtype dtype, dl_op op);
DL_API dl_result dl_iall_reduce_shards(dl_comm* comm, int shards, const void* const* in, void* out,
                                       size_t count, dl_dtype dtype, dl_op op,
                                       dl_request** request);
/* The shards [*first, *last) of a rank. DL_ERR_INVALID if there is no such rank, or `shards` is not
 * 1 to DL_MOST_SHARDS. */
DL_API dl_result dl_shard_range(int shards, int rank, int size, int* first, int* last);

/* How float32 values travel. All but the first lose some of each value. */
typedef enum dl_codec {
  DL_CODEC_NONE = 0, /* 4 bytes for each value */
  DL_CODEC_BF16 = 1, /* 2 bytes: the upper half of the float, rounded to nearest even */
  DL_CODEC_INT8 = 2, /* 1 byte, and 4 bytes for 256 values: each value becomes a multiple of the
                        scale max |x| / 127 of its block */
  DL_CODEC_FP8 = 3,  /* as many bytes: an e4m3 of each value by the scale max |x| / 448 */
  DL_CODEC_INT4 = 4, /* 4 bits, and 4 bytes for 128 values: multiples of the scale max |x| / 7 */
  DL_CODEC_TOPK = 5, /* 1.5 bits: the 16 largest of 256 values, as BF16 with their places; all
                        others are 0, and need a residual. Not for wire_codec */
  DL_CODEC_ANY_INT = -0x7fffffff - 1 /* no codec: as above */
} dl_codec;

/* out[i] = the average over ranks of in[i], in float32, on every rank. The values travel in the
 * codec: each rank sends the values of a slice to its owner, which adds them in the order of ranks,
 * and the owners send the averages, once more in the codec, to all. So a rank sends and receives
 * about twice the encoded size of `in`, whatever the number of ranks.
 *
 * residual: `count` floats of this rank, or NULL; zeros before the first call. The library adds
 * them to `in`, and leaves there what the codec has lost in this call (error feedback: Seide et
 * al., Interspeech 2014; Karimireddy et al., ICML 2019). So the mean of many calls is that of exact
 * calls. A program keeps one residual for each tensor, and saves it with its state. After an error
 * the contents are undefined, as those of `out`.
 *
 * A NaN or an infinity makes its block NaN (with bf16 and topk only itself), on all ranks, and
 * leaves no residual. A single rank loses nothing. All ranks get the same bits, on any hosts and
 * through any transport. In place: out == in. DL_ERR_MISMATCH: ranks gave different counts or
 * codecs. DL_ERR_UNSUPPORTED: a buffer is in the memory of a GPU (see dl_copy). */
DL_API dl_result dl_compressed_average(dl_comm* comm, const float* in, float* out, size_t count,
                                       dl_codec codec, float* residual);
DL_API dl_result dl_icompressed_average(dl_comm* comm, const float* in, float* out, size_t count,
                                        dl_codec codec, float* residual, dl_request** request);

/* An all_reduce that does not wait for slow ranks: it is over once enough contributions are in.
 * Every rank makes all these calls, in the same order as its other collectives, and every rank gets
 * the same bits in each. A call is decided when all ranks are in it. It is also decided when
 * - `need` ranks are in it that give values, and
 * - a rank has waited in it for wait_s; the first to come is the first to have waited. 0: as soon
 *   as enough ranks have come, and
 * - no rank has yet to make the call that was max_behind calls before it. Otherwise the ranks wait
 *   for that one: this limits how old its values can be, and the memory for what it has yet to get.
 *   0: every call waits for all ranks.
 * Rank 0 decides, on a thread of the library, also while its program computes.
 * The contributions that have come by then are in. A rank that comes later is late, and its call
 * does not wait: it gets the same result, which lacks its values. With late == DL_LATE_DROP they
 * count nowhere. With DL_LATE_CARRY the library keeps them and adds them to what this rank gives in
 * the next of its calls that is in, in the type of the call. `slot` is any number of the program
 * for a buffer: values that are kept in a slot go into a call with this slot, which must have the
 * same count and dtype, else DL_ERR_INVALID. Each contribution is in exactly one call, or dropped,
 * or still kept when the communicator ends; then it is lost.
 * out[i] = the sum of what is in. DL_AVG divides it by the number of contributions, and each
 * contribution that was kept counts. If nothing is in, because all ranks gave nothing, out is 0.
 * The library adds in the order of ranks, in one pass, and rounds floats of 8 and 16 bits once.
 * With DL_LATE_CARRY it also rounds floats of 16 bits each time that it adds to what it keeps. It
 * returns DL_ERR_UNSUPPORTED for types of 8 bits, and for DL_AVG of integers, with DL_LATE_CARRY
 * and while the slot keeps values: sums that are kept could leave the range of the type.
 * given: NULL, or dl_size() numbers, the same on every rank: how many contributions of each rank
 * are in. *fate (or NULL): what became of this rank's own.
 *
 * A rank that is slow all the time is late in every call, and in the end the others wait at
 * max_behind. So before it computes, it should make the calls that are decided already, with in ==
 * NULL, and apply their results:
 *   dl_fate fate = DL_FATE_NONE;
 *   for (step = 0; step < steps; ++step) {
 *     int late = dl_some_behind(comm) > 0 || fate == DL_FATE_CARRIED;
 *     if (!late) compute(values);
 *     dl_all_reduce_some(comm, late ? NULL : values, out, count, dtype, op, &options, NULL, &fate);
 *     apply(out);
 *   }
 * A rank with in == NULL gives nothing but what is kept in the slot. So with DL_LATE_CARRY a slow
 * rank of this loop makes one call with NULL once it has caught up, and what was kept is in. With
 * DL_LATE_DROP a rank that is slow all the time computes in vain, but holds up no other rank.
 *
 * The ranks exchange the values as messages, which those of the program never meet: in each call a
 * rank that is in sends up to 2 (dl_size() - 1) of them. It keeps its part of up to max_behind + 1
 * results for ranks that are late. Each rank opens a socket for each other rank at its first such
 * call, and one descriptor more, and rank 0 has a control connection with every rank: for jobs of
 * hundreds of ranks raise the limit of descriptors (ulimit -n). While a rank is in such a call no
 * other thread may use the communicator, not even for messages.
 * The messages from one rank to another come in order, those of the program among the results. A
 * rank keeps messages that come before their receive, up to 256 MiB from each rank. So a receive
 * fails with DL_ERR_IO if the results before it that this rank has yet to take are larger; and this
 * call fails so if the program's messages before its result, which this rank has yet to receive,
 * are larger together with such results. A rank that is late should make the calls that are decided
 * before it receives messages of the program.
 * dl_finalize() and dl_rejoin() wait until late ranks have got this rank's results, as long as an
 * operation may take, or 1800 s if that is for ever. After 5 s, or half of that time, they warn on
 * stderr which ranks they wait for. The end of the round, known to the launcher, ends this wait. A
 * program that ends without dl_finalize() may end the results for late ranks with DL_ERR_PEER_LOST,
 * and so does an exception that ends a dl::Communicator in C++. The loss of a rank ends these calls
 * on all ranks, also if it was late, and so does a rank that leaves before it has made all calls.
 * The time limit of an operation holds for the wait for a decision, and DL_ERR_TIMEOUT names the
 * ranks that have not come. A wait_s beyond this limit means the limit: the call then fails unless
 * all come. DL_ERR_UNSUPPORTED: another op than DL_SUM and DL_AVG, a buffer in the memory of a GPU
 * (see dl_copy), or more than 16,383 ranks. DL_ERR_MISMATCH: ranks gave different counts, types,
 * operations, `need` or max_behind. wire_codec does not apply.
 *
 * With DL_LATE_DROP these are the backup workers of Chen et al., "Revisiting Distributed
 * Synchronous SGD", 2016 (arXiv 1604.00981); with DL_LATE_CARRY it is a partial collective as in
 * Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective
 * Operations", 2020 (arXiv 1908.04207). */
typedef enum dl_late {
  DL_LATE_DROP = 0,
  DL_LATE_CARRY = 1,
  DL_LATE_ANY_INT = -0x7fffffff - 1 /* neither: as for dl_dtype */
} dl_late;
typedef enum dl_fate {
  DL_FATE_NONE = 0,    /* the rank gave nothing, and nothing is kept */
  DL_FATE_IN = 1,      /* its contribution is in, with all that were kept in the slot */
  DL_FATE_DROPPED = 2, /* it was late, and its contribution counts nowhere */
  DL_FATE_CARRIED = 3  /* it was late, or gave nothing, and contributions are kept in the slot */
} dl_fate;
/* Set every field by dl_some_options_init() first, then change what you need. */
typedef struct dl_some_options {
  size_t struct_size; /* sizeof(dl_some_options) */
  int need;           /* 1 to dl_size(); the same on every rank. Has no default */
  double wait_s;      /* >= 0; 0 by default */
  dl_late late;       /* DL_LATE_DROP by default; may differ between ranks and calls */
  int max_behind;     /* >= 0; the same on every rank. 16 by default */
  int slot;           /* 0 by default */
} dl_some_options;
DL_API void dl_some_options_init(dl_some_options* options);
DL_API dl_result dl_all_reduce_some(dl_comm* comm, const void* in, void* out, size_t count,
                                    dl_dtype dtype, dl_op op, const dl_some_options* options,
                                    int* given, dl_fate* fate);
/* How many calls of dl_all_reduce_some() are decided that this rank has yet to make. It costs
 * nothing. Call it on the communicator's thread. */
DL_API int dl_some_behind(const dl_comm* comm);

#ifdef __cplusplus
}
#endif

#endif /* DLAUNCH_REDUCTIONS_H */

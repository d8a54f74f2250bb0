/* libdlring: collectives for the ranks of one job. C API, stable ABI.
 *
 * Every rank makes a communicator with dl_init() and then calls the same collectives in the same
 * order. Calls block until the result is there; the calling thread does the work, beside a thread
 * that exchanges large sums with other hosts. Calls with an i (dl_iall_reduce) return at once and
 * run in the background. Only one thread at a time may use a communicator, with two exceptions: any
 * thread may call dl_abort() at any time, and while one thread is in a blocking collective other
 * than dl_all_reduce_some() another one may send and receive messages.
 *
 * A call returns DL_OK or an error code; dl_last_error() then gives a readable sentence. After any
 * error of a collective other than DL_ERR_INVALID and DL_ERR_UNSUPPORTED the communicator is
 * broken: every later call returns the same error at once. The contents of its output buffers are
 * then undefined; pure input buffers are untouched.
 *
 * Counts are elements, not bytes. `in` may equal `out` (in place) wherever a call takes both. A
 * call returns DL_ERR_INVALID for other overlaps that it detects; the rest are undefined. Buffers
 * need only the alignment of their element type. A count of 0 is a valid collective that moves
 * nothing.
 *
 * All ranks get the same bits. A later run of the program gets them, too, if it has the same number
 * of ranks on as many hosts; dl_all_reduce_shards() does not depend on either.
 */
#ifndef DLAUNCH_RING_H
#define DLAUNCH_RING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DL_API __attribute__((visibility("default")))

typedef struct dl_comm dl_comm;
typedef struct dl_request dl_request;       /* an operation in the background */
typedef struct dl_persistent dl_persistent; /* a call that is made many times */

typedef enum dl_result {
  DL_OK = 0,
  DL_ERR_INVALID = 1,     /* an argument is wrong: this call did nothing */
  DL_ERR_IO = 2,          /* the system refused: memory, sockets, files */
  DL_ERR_TIMEOUT = 3,     /* the operation's deadline passed; the text names the missing ranks */
  DL_ERR_PEER_LOST = 4,   /* a rank died or left, or its host has been silent for
                             DLAUNCH_LINK_TIMEOUT or 5 s; dl_peer_lost() is the rank. Or NCCL has
                             failed between the GPUs: the round is over, and names no rank */
  DL_ERR_MISMATCH = 5,    /* two ranks made different calls; the text names both. If roots differ
                             only the next collective without a root may find it */
  DL_ERR_ABORTED = 6,     /* dl_abort() was called on this rank, or the function of an operation
                             failed on it */
  DL_ERR_AUTH = 7,        /* another job, another round or a wrong secret */
  DL_ERR_UNSUPPORTED = 8, /* valid, but not in this build or for this type */
  DL_ERR_PROTOCOL = 9,    /* a peer sent bytes that make no sense */
  DL_ERR_CORRUPT = 10     /* ranks hold different results of a call whose result is equal on all
                             ranks: see dl_verify() */
} dl_result;

typedef enum dl_dtype {
  DL_INT8 = 0,
  DL_UINT8 = 1,
  DL_INT32 = 2,
  DL_UINT32 = 3,
  DL_INT64 = 4,
  DL_UINT64 = 5,
  DL_FLOAT16 = 6,  /* IEEE binary16 */
  DL_BFLOAT16 = 7, /* the upper half of a binary32 */
  DL_FLOAT32 = 8,
  DL_FLOAT64 = 9,
  DL_COMPLEX64 = 10,   /* two binary32: the real and the imaginary part */
  DL_COMPLEX128 = 11,  /* two binary64 */
  DL_FLOAT8_E4M3 = 12, /* OCP's 8-bit float up to 448, with NaN and without infinity */
  DL_FLOAT8_E5M2 = 13, /* OCP's 8-bit float up to 57344: the upper half of a binary16 */
  DL_DTYPE_ANY_INT = -0x7fffffff - 1 /* no type: lets every int pass as a value, and be refused */
} dl_dtype;

/* Integer sums and products wrap. AVG divides the sum by the number of ranks (integers: towards
 * zero). MAX and MIN of floats give NaN if any operand is NaN. Complex numbers have sums, averages
 * and products, (a+bi)(c+di) = (ac-bd) + (ad+bc)i. The bitwise ops take integers only.
 * DL_ERR_UNSUPPORTED: a type that the op does not take. Floats of 8 and 16 bits are added in
 * binary32 and rounded once, to nearest even. A result beyond the range of FLOAT8_E4M3 is NaN, and
 * infinite in the other formats, as in PyTorch and ml_dtypes. On several hosts, or over sockets
 * with more than 16 ranks, partial sums of 16-bit floats may be rounded, too. In averages of
 * FLOAT16 that concerns only the averages of each host, because a sum may be out of range. There
 * the ranks move 8-bit floats as they do for a function of dl_op_create() that does not commute,
 * because rounded partial sums would lose too much. Where NCCL moves the data of GPUs, NCCL also
 * adds and rounds.
 * A value outside this enum may stand for an operation of dl_op_create() or
 * dl_op_create_premul_sum(). */
typedef enum dl_op {
  DL_SUM = 0,
  DL_PRODUCT = 1,
  DL_MAX = 2,
  DL_MIN = 3,
  DL_AVG = 4,
  DL_BAND = 5,
  DL_BOR = 6,
  DL_BXOR = 7,
  DL_OP_ANY_INT = -0x7fffffff - 1 /* no op: as above */
} dl_op;

/* A reduction of the program's own: sets inout[i] to in[i] op inout[i], for `count` elements. `in`
 * has the values of lower ranks than inout. context: as in dl_op_create(). Returns 0; any other
 * number ends the call with DL_ERR_ABORTED on this rank, and this call or the next one with
 * DL_ERR_PEER_LOST on the others, as dl_abort() does. The library calls it with some elements at a
 * time, as many and as often as it likes, on the thread that carries out the call: of a background
 * call, and of a large call between hosts, that is a thread of the library. It must give the same
 * results on all ranks, must not throw, and must not use a communicator. */
typedef int dl_op_function(const void* in, void* inout, size_t count, dl_dtype dtype,
                           void* context);
/* Makes an operation of a function, for every call that takes a dl_op, on any communicator of this
 * process. The ranks make theirs on their own: the library cannot compare functions, and reports
 * DL_ERR_MISMATCH only where one rank gives a function and another one something else, or a
 * function with other `commutes`. The function gets the dtype of the call, which may be any type.
 *
 * commutes == 0: each element is ((x0 op x1) op x2) ... in the order of ranks, on any hosts and
 * through any transport; that needs no associativity either. dl_all_reduce_shards() combines the
 * values along its tree, in the order of shards. The usual algorithm may change the order in an
 * all_reduce between hosts with several ranks each, and over sockets with more than 16 ranks. There
 * each rank gets the values of a slice of the elements from all others, which moves more bytes
 * between hosts.
 * commutes != 0: the function must also be associative. The order is the same, but for those two
 * cases: there the values of any ranks may come first and in groups, the same on all ranks and in
 * every run.
 * All ranks get the same bits. Buffers are in host memory: DL_ERR_UNSUPPORTED for memory of a GPU.
 * dl_last_error(NULL) has the text of an error. DL_ERR_UNSUPPORTED from this call: the process has
 * made 2^30 operations, also with dl_op_create_premul_sum(), and freed numbers are not used
 * again. */
DL_API dl_result dl_op_create(dl_op_function* function, int commutes, void* context, dl_op* op);
/* Makes the sum of values that each rank multiplies by its own factor: out = the sum over ranks of
 * factor * in. For floats and complex numbers: DL_ERR_UNSUPPORTED for integers. The library rounds
 * the factor to the type of the values, as NCCL needs it, and then each product. So a factor for
 * values of FLOAT8_E4M3 must not exceed 448. Floats of 8 and 16 bits are multiplied in binary32.
 * Every call that takes a dl_op takes it (all_reduce_shards: for all shards of a rank), also on the
 * memory of GPUs, where NCCL multiplies if it moves the data. An all_reduce and its list write the
 * products to `out` first; other calls need memory for them, which the library keeps until the
 * communicator ends. wire_codec does not apply. */
DL_API dl_result dl_op_create_premul_sum(double factor, dl_op* op);
/* Frees an operation that the program has made. Calls that have begun may go on with its function
 * until they are done. DL_ERR_INVALID: there is no such operation. */
DL_API dl_result dl_op_free(dl_op op);

/* Set every field by dl_options_init() first, then change what you need. */
typedef struct dl_options {
  size_t struct_size;      /* sizeof(dl_options): keeps old programs working with newer libraries */
  int rank;                /* for tcp:// and file://; -1: from RANK */
  int size;                /* for tcp:// and file://; -1: from WORLD_SIZE */
  double init_timeout_s;   /* until every rank has arrived; <0: DLAUNCH_INIT_TIMEOUT or 600 */
  double op_timeout_s;     /* for each operation; <0: DLAUNCH_OP_TIMEOUT or 1800; 0: for ever */
  const char* transport;   /* "auto", "shm", "tcp"; NULL: DLAUNCH_TRANSPORT or "auto" */
  const char* job_id;      /* keeps jobs apart; NULL: DLAUNCH_JOB_ID or "default" */
  const char* secret_file; /* NULL: DLAUNCH_SECRET_FILE, or no secret */
  const char* wire_codec;  /* "none", "bf16", "int8", "fp8", "int4": how sums and averages of
                              float32 and complex64 in all_reduce travel between hosts; lossy, see
                              dl_codec. The same on every rank. NULL: DLAUNCH_WIRE_CODEC, or
                              "none" */
  int elastic;             /* 1: this process goes on when others are lost: see dl_rejoin() */
} dl_options;

DL_API void dl_options_init(dl_options* options);

/* Joins the job and waits until all ranks have joined. Collective. url:
 *   NULL or "env://"    the launcher's environment: dlaunch's own (DLAUNCH_RDZV), or RANK,
 *                       WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torchrun and others set them (rank
 *                       0 then listens on MASTER_PORT). Without RANK and WORLD_SIZE: a world of
 *                       one.
 *   "tcp://host:port"   rank 0 listens there, the others connect; rank and size from options.
 *                       If the host is a name that leads to loopback on rank 0's own host, as on
 *                       Debian, rank 0 listens on all addresses, unless LOCAL_WORLD_SIZE says that
 *                       all ranks are there. It never does so for "localhost" or an address.
 *   "tcp://host:port/NAME"  the same, apart from worlds of other names at that port: as often as
 *                       rank 0 likes, one after the other or at the same time. The name has 1 to
 *                       64 letters, digits or one of -_.
 *   "file:///folder"    through files in a folder that all ranks share, new for each job.
 *   "etcd://host:port,host:port/prefix"  through etcd; "etcds://" by TLS. A user, a password and
 *                       files of TLS come from etcdctl's variables (ETCDCTL_USER ...).
 * options may be NULL. On failure *comm is NULL and dl_last_error(NULL) says why.
 * Between hosts the ranks connect to each other by the address on the route to the store, or that
 * of DLAUNCH_INTERFACE (eth0, 10.0.0.7, 10.0.0.0/8), on ports that the kernel chooses, or ports of
 * DLAUNCH_PORT_RANGE (29600-29700). */
DL_API dl_result dl_init(const char* url, const dl_options* options, dl_comm** comm);

/* Leaves in good order and frees the communicator; peers that need this rank later get
 * DL_ERR_PEER_LOST. Not collective. NULL is allowed. */
DL_API void dl_finalize(dl_comm* comm);

/* Makes the pending and all later calls of this rank return DL_ERR_ABORTED and notifies the peers,
 * which get DL_ERR_PEER_LOST naming this rank. Any thread; returns at once. */
DL_API void dl_abort(dl_comm* comm);

/* Elastic jobs. A process that set options.elastic and was started by dlaunch (url env://) takes
 * part in rounds, which are numbered memberships. The launcher forms the next round when a member
 * is lost, or when the job is to grow or to shrink. dl_init() then blocks until this process is in
 * a round; rank and size come from the round, and the environment is ignored. Without dlaunch the
 * option has no effect: one round lasts for ever.
 *
 * The loss of a member ends the round: a pending collective and every later one return
 * DL_ERR_PEER_LOST, and dl_peer_lost() returns the rank. A change of the job's size also ends the
 * round, but its members can use it until they leave; dl_round_over() returns 1.
 *
 * dl_rejoin() leaves the round, even one that is not over, blocks until the launcher has formed the
 * next one, and joins it in place. Rank and size may change, and a new process without any state
 * may replace one that died: the ranks must agree on their state before they go on. Every member
 * must call it. version: the number of the newest state that this process holds, growing; 0: none.
 * Groups made by dl_split() stay in the old round; free them. Requests stay there, too: pending
 * ones end with the error of that round, or DL_ERR_ABORTED if it had none, and release their
 * buffers; dl_wait() and its kin return that error. Not during another call on this communicator,
 * dl_wait() and dl_abort() included. DL_ERR_UNSUPPORTED: no launcher forms rounds here; DL_ERR_IO:
 * the launcher has gone. */
DL_API dl_result dl_rejoin(dl_comm* comm, uint64_t version);
/* Reports to the launcher the number of the newest state that this process holds, as dl_rejoin()
 * does: the launcher sees from it whether the job makes progress, and how far it is. Cheap enough
 * for each step; without an elastic launcher it does nothing. Call it on the communicator's
 * thread. */
DL_API void dl_progress(dl_comm* comm, uint64_t version);
/* The number of the round, from 1; grows. */
DL_API uint64_t dl_round(const dl_comm* comm);
/* 1: the round is over. Cheap enough for each step. */
DL_API int dl_round_over(const dl_comm* comm);

DL_API int dl_rank(const dl_comm* comm);
DL_API int dl_size(const dl_comm* comm);
/* How the collectives of this communicator move data: "shm", "tcp", "shm+tcp" (shared memory on
 * each host, sockets between hosts) or "self". */
DL_API const char* dl_transport(const dl_comm* comm);

/* Describes how this communicator would do a call: the algorithm and its parameters. Moves nothing;
 * not collective. collective: "all_reduce" and so on; op and root matter only where the collective
 * has them. Writes at most `size` bytes with the final zero. With DLAUNCH_DEBUG=explain rank 0
 * prints the text to stderr for each new kind or size of call. */
DL_API dl_result dl_explain(dl_comm* comm, const char* collective, size_t count, dl_dtype dtype,
                            dl_op op, int root, char* text, size_t size);

/* out[i] = op over ranks of in[i], i < count, on every rank. */
DL_API dl_result dl_all_reduce(dl_comm* comm, const void* in, void* out, size_t count,
                               dl_dtype dtype, dl_op op);

/* in has size*count elements; out gets this rank's `count` of the reduction: elements
 * [rank*count, (rank+1)*count). In place: out == in + rank*count elements. */
DL_API dl_result dl_reduce_scatter(dl_comm* comm, const void* in, void* out, size_t count,
                                   dl_dtype dtype, dl_op op);

/* reduce_scatter of parts that differ: rank r gets counts[r] elements, those behind the parts of
 * the ranks before it. counts: dl_size() numbers, the same on every rank; in has as many elements
 * as all of them together. In place: out == in + the sum of the counts before the own one. */
DL_API dl_result dl_reduce_scatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                                     dl_dtype dtype, dl_op op);

/* Every rank gives `count` elements; out gets size*count of them in rank order.
 * In place: in == out + rank*count elements. */
DL_API dl_result dl_all_gather(dl_comm* comm, const void* in, void* out, size_t count,
                               dl_dtype dtype);

/* out[i] on rank `root` = op over ranks of in[i]. `out` of other ranks is not used and may be NULL.
 * In place: out == in. */
DL_API dl_result dl_reduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                           dl_op op, int root);

/* all_gather of parts that differ: rank r gives counts[r] elements, and out gets all of them in
 * rank order. counts: dl_size() numbers, the same on every rank. In place: in == out + the sum of
 * the counts before the own one. */
DL_API dl_result dl_all_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                                 dl_dtype dtype);

/* Every rank gives `count` elements; out of rank `root` gets size*count of them in rank order, or
 * with dl_gather_v counts[r] of rank r (counts as above). `out` of other ranks is not used and may
 * be NULL. In place, on the root: in is its own part of out. */
DL_API dl_result dl_gather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                           int root);
DL_API dl_result dl_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                             dl_dtype dtype, int root);

/* in of rank `root` has size*count elements; out of rank r gets elements [r*count, (r+1)*count), or
 * with dl_scatter_v counts[r] of them (counts as in dl_reduce_scatter_v). `in` of other ranks is
 * not used and may be NULL. In place, on the root: out is its own part of in. */
DL_API dl_result dl_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            int root);
DL_API dl_result dl_scatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                              dl_dtype dtype, int root);

/* in and out have size*count elements: part p of rank r's `in` becomes part r of rank p's `out`.
 * They must not overlap. */
DL_API dl_result dl_all_to_all(dl_comm* comm, const void* in, void* out, size_t count,
                               dl_dtype dtype);
/* all_to_all of parts that differ: the parts lie end to end. in has in_counts[r] elements for each
 * rank r, out gets out_counts[r] from it. Each array has dl_size() numbers. A rank needs to know
 * only its own, and in_counts[r] must be what rank r has for this rank in its out_counts; otherwise
 * DL_ERR_MISMATCH says what both ranks have. A rank's own part must have one length in both arrays,
 * else this rank gets DL_ERR_INVALID. The ranks exchange the numbers first, 32 bytes from each to
 * each, and each rank waits for all others, also where dl_set_stream_ordered() is on. */
DL_API dl_result dl_all_to_all_v(dl_comm* comm, const void* in, const size_t* in_counts, void* out,
                                 const size_t* out_counts, dl_dtype dtype);

/* Lists of tensors, treated as one buffer: read in place in a host's shared memory, copied together
 * for sockets. Tensor i has counts[i] elements at in[i] and out[i] (which may be the same). The
 * counts must be the same on every rank. The rules for overlaps hold for all tensors of a list
 * together; buffers of a broadcast may overlap if they do so on all ranks. */
DL_API dl_result dl_all_reduce_list(dl_comm* comm, size_t tensors, const void* const* in,
                                    void* const* out, const size_t* counts, dl_dtype dtype,
                                    dl_op op);
DL_API dl_result dl_broadcast_list(dl_comm* comm, size_t tensors, void* const* bufs,
                                   const size_t* counts, dl_dtype dtype, int root);

/* out[i] on rank r = op over the ranks 0 to r of in[i]; with dl_exscan over the ranks before r, and
 * rank 0's `out` stays as it is and may be NULL. The library reduces from rank 0 upwards, and
 * rounds floats of 8 and 16 bits after each rank. On one host the ranks move as many bytes as in an
 * all_reduce; on several hosts with several ranks each they move more. In place: out == in.
 * DL_ERR_UNSUPPORTED: DL_AVG, and buffers in the memory of a GPU (see dl_copy). */
DL_API dl_result dl_scan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                         dl_op op);
DL_API dl_result dl_exscan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                           dl_op op);

/* Copies buf of rank `root` to buf of every other rank. */
DL_API dl_result dl_broadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root);

/* Returns when every rank has called it. */
DL_API dl_result dl_barrier(dl_comm* comm);

/* Verified calls: with DLAUNCH_VERIFY (dlaunch --verify) the ranks compare their results of
 * all_reduce, all_reduce_list, all_reduce_shards, compressed_average, broadcast and all_gather in
 * host memory. All ranks get the same bits there, so a difference shows that data changed in a
 * memory, in a processor or on their way. Each rank hashes its results, and the ranks compare the
 * hashes after every 64 calls or 16 MiB of results; in a group after each call. "sample" takes one
 * call in 64, and "results" all calls: both find what differs between ranks. "full" also finds
 * values that are wrong on all ranks alike: each rank gets all ranks' values of an all_reduce, and
 * reduces all of them itself, in the order of ranks. That moves as many bytes as an all_gather of
 * the values.
 *
 * A difference ends the communicator with DL_ERR_CORRUPT on all ranks. If more than half of the
 * ranks hold the same bytes, and no rank has passed them on to others, the text names the others,
 * with the call and the bytes: their data, or their connections, are corrupt. dl_peer_lost() is the
 * lowest of these ranks, but -1 on that rank itself: its dl_rejoin() returns DL_ERR_ABORTED,
 * because its process must end. Otherwise dl_peer_lost() is -1 on all ranks. Elastic programs
 * recover as from DL_ERR_PEER_LOST.
 *
 * dl_verify() compares what the ranks have not compared yet, as dl_barrier() does: call it before
 * results leave the job, into a file say. Commits of elastic state call it. Collective; without
 * DLAUNCH_VERIFY, or a call since the last one, it returns DL_OK at once, even if a rank has been
 * lost. */
DL_API dl_result dl_verify(dl_comm* comm);

/* Point to point. The library matches messages by (peer, tag) in the order of sending; tag >= 0.
 * dl_send returns when the caller may reuse buf, possibly before the peer calls dl_recv. dl_recv:
 * count and dtype must be the sender's, else DL_ERR_MISMATCH; but DL_UINT8 matches as many bytes of
 * any dtype, on either side. peer != own rank. The library buffers
 * unreceived messages, up to 256 MiB for each peer. Further ones wait in the connection, with all
 * later ones behind them: receiving a later one first fails with DL_ERR_IO, and ranks that
 * dl_send() each other more than that before they receive block until their deadline. */
DL_API dl_result dl_send(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer,
                         int tag);
DL_API dl_result dl_recv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag);

/* Takes the next message with this tag from any rank; *source, unless NULL, is the sender. */
DL_API dl_result dl_recv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag,
                             int* source);

/* Background operations. The buffers belong to the operation until it is done; the library copies
 * counts and lists. *request becomes a handle that dl_wait() and its kin free, or NULL if the call
 * returns an error. The call returns errors of its arguments; dl_wait() returns all others.
 * Collectives run one after the other in the order in which the caller started or called them; the
 * order must be the same on all ranks. Messages run beside them and beside each other. A thread of
 * the library does the work, so it overlaps with the caller's if a core is free. dl_finalize() with
 * pending operations aborts. */
DL_API dl_result dl_iall_reduce(dl_comm* comm, const void* in, void* out, size_t count,
                                dl_dtype dtype, dl_op op, dl_request** request);
DL_API dl_result dl_iall_reduce_list(dl_comm* comm, size_t tensors, const void* const* in,
                                     void* const* out, const size_t* counts, dl_dtype dtype,
                                     dl_op op, dl_request** request);
DL_API dl_result dl_iscan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                          dl_op op, dl_request** request);
DL_API dl_result dl_iexscan(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            dl_op op, dl_request** request);
DL_API dl_result dl_ireduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            dl_op op, int root, dl_request** request);
DL_API dl_result dl_ireduce_scatter(dl_comm* comm, const void* in, void* out, size_t count,
                                    dl_dtype dtype, dl_op op, dl_request** request);
DL_API dl_result dl_ireduce_scatter_v(dl_comm* comm, const void* in, void* out,
                                      const size_t* counts, dl_dtype dtype, dl_op op,
                                      dl_request** request);
DL_API dl_result dl_iall_gather(dl_comm* comm, const void* in, void* out, size_t count,
                                dl_dtype dtype, dl_request** request);
DL_API dl_result dl_iall_gather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                                  dl_dtype dtype, dl_request** request);
DL_API dl_result dl_igather(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            int root, dl_request** request);
DL_API dl_result dl_igather_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                              dl_dtype dtype, int root, dl_request** request);
DL_API dl_result dl_iscatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                             int root, dl_request** request);
DL_API dl_result dl_iscatter_v(dl_comm* comm, const void* in, void* out, const size_t* counts,
                               dl_dtype dtype, int root, dl_request** request);
DL_API dl_result dl_iall_to_all(dl_comm* comm, const void* in, void* out, size_t count,
                                dl_dtype dtype, dl_request** request);
DL_API dl_result dl_iall_to_all_v(dl_comm* comm, const void* in, const size_t* in_counts, void* out,
                                  const size_t* out_counts, dl_dtype dtype, dl_request** request);
DL_API dl_result dl_ibroadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root,
                               dl_request** request);
DL_API dl_result dl_ibroadcast_list(dl_comm* comm, size_t tensors, void* const* bufs,
                                    const size_t* counts, dl_dtype dtype, int root,
                                    dl_request** request);
DL_API dl_result dl_ibarrier(dl_comm* comm, dl_request** request);
DL_API dl_result dl_isend(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer,
                          int tag, dl_request** request);
DL_API dl_result dl_irecv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag,
                          dl_request** request);
/* The wait for the request writes *source. */
DL_API dl_result dl_irecv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag,
                              int* source, dl_request** request);

/* Blocks until the operation is done, frees the request and sets *request to NULL. Returns the
 * operation's result. *request == NULL: DL_OK at once. Free a request before its communicator. Any
 * thread may wait for a request or test it, one thread for each request, beside other calls on its
 * communicator (except for a message to memory on a GPU). In a forked child dl_wait() frees the
 * handle and returns DL_ERR_INVALID, as any call does there: the operation is the parent's. */
DL_API dl_result dl_wait(dl_request** request);
/* *done: whether the operation is done; then as dl_wait(). */
DL_API dl_result dl_test(dl_request** request, int* done);
/* Blocks until the operation is done, for at most timeout_s (<0: no limit). *done: whether it is;
 * then as dl_wait(). Otherwise DL_OK: the operation goes on, and the caller can wait for it
 * again. */
DL_API dl_result dl_wait_for(dl_request** request, double timeout_s, int* done);
/* Blocks until one of the requests is done and handles it as dl_wait() does; *index is its place.
 * Skips NULL entries; if all are NULL *index is n. */
DL_API dl_result dl_wait_any(size_t n, dl_request** requests, size_t* index);
/* Waits for all of the requests, and returns the first error in their order. */
DL_API dl_result dl_wait_all(size_t n, dl_request** requests);

/* Persistent calls, as MPI's: a call that a program makes many times with the same arguments. The
 * library checks them once: in shared memory an all_reduce of 8 bytes takes a quarter less time,
 * and one of 1 KiB a sixth. *call becomes a handle; nothing is moved, and this is not collective.
 * dl_persistent_run() then makes the call, as the blocking function does, also within a batch;
 * dl_persistent_start() makes it in the background. Each counts as a call of its own at its place
 * among the collectives. Another rank may make the same call in any form, but all ranks make it in
 * a batch, or none does.
 *
 * The buffers must exist when a call is made, and their contents may change between the calls. An
 * operation of dl_op_create() stays in use until the handle is freed. Free it before its
 * communicator. dl_rejoin() ends its use: DL_ERR_INVALID from then on. */
DL_API dl_result dl_all_reduce_init(dl_comm* comm, const void* in, void* out, size_t count,
                                    dl_dtype dtype, dl_op op, dl_persistent** call);
DL_API dl_result dl_reduce_init(dl_comm* comm, const void* in, void* out, size_t count,
                                dl_dtype dtype, dl_op op, int root, dl_persistent** call);
DL_API dl_result dl_reduce_scatter_init(dl_comm* comm, const void* in, void* out, size_t count,
                                        dl_dtype dtype, dl_op op, dl_persistent** call);
DL_API dl_result dl_all_gather_init(dl_comm* comm, const void* in, void* out, size_t count,
                                    dl_dtype dtype, dl_persistent** call);
DL_API dl_result dl_all_to_all_init(dl_comm* comm, const void* in, void* out, size_t count,
                                    dl_dtype dtype, dl_persistent** call);
DL_API dl_result dl_broadcast_init(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root,
                                   dl_persistent** call);
DL_API dl_result dl_barrier_init(dl_comm* comm, dl_persistent** call);
DL_API dl_result dl_persistent_run(dl_persistent* call);
/* dl_wait() and its kin take the request. */
DL_API dl_result dl_persistent_start(dl_persistent* call, dl_request** request);
/* Requests of its calls are independent of it. NULL is allowed. */
DL_API void dl_persistent_free(dl_persistent* call);

/* Batches: calls of several kinds that begin together, as between ncclGroupStart() and
 * ncclGroupEnd(). From dl_batch_start() to dl_batch_end() blocking collectives, dl_send() and
 * dl_recv() only check their arguments and return: the end carries them out, and returns when all
 * are done. So ranks may send to each other and receive in any order. All ranks batch the same
 * collectives in the same order: one that makes them outside a batch may cause DL_ERR_MISMATCH.
 * Messages run beside the collectives and beside each other; those
 * to one peer with one tag keep their order.
 *
 * The library makes one call of those all_reduces of a batch that have one type and op, and of
 * those broadcasts that have one type and root, if each has at most 64 KiB of host memory (except
 * all_reduces of float32 and complex64 with a wire_codec, and all with an operation of
 * dl_op_create()). For 64 all_reduces of 1 KiB two ranks of one host need 27 us instead of 365 over
 * sockets, and in shared memory 13 us instead of 16 if their cores share a cache, else 15 instead
 * of 42. Error texts then name a list. Between hosts floats may get other roundings than in calls
 * of their own, as in dl_all_reduce_list().
 *
 * The calls of a batch must not depend on each other: memory that one writes must be no other
 * one's. A broadcast counts as writing its buffer on the root, too. dl_batch_end() returns
 * DL_ERR_INVALID if it finds that, and has done nothing then. From its call to the end of the batch
 * a buffer belongs to the library; it copies counts and lists. It writes the source of
 * dl_recv_any() at the end.
 *
 * An error of an argument is the error of its call and of the end, too, which then does nothing.
 * Any other error comes from the end and ends the communicator, as that of a lost rank does; the
 * first one counts. This includes an argument that only the end finds wrong, such as memory of a
 * GPU other than the communicator's. A program does not learn which calls are done by then. Each
 * collective has its own time limit, from its beginning; the messages begin with the end.
 *
 * A dl_batch_start() within a batch adds to it: only the outermost end carries it out, and the
 * inner ones return DL_OK. While a batch is open no other thread may use the communicator, not even
 * for messages. Calls with a request, dl_all_reduce_some(), dl_alloc() and dl_split() return
 * DL_ERR_INVALID, and the end fails, too. After such an error the batch is still open: call its
 * end, or dl_batch_drop(), nevertheless. Functions of other headers that communicate must not be
 * called. Calls on the memory of GPUs run one after the other. */
DL_API dl_result dl_batch_start(dl_comm* comm);
DL_API dl_result dl_batch_end(dl_comm* comm);
/* The end in the background: the wait for the request ends the batch. *request is NULL after an
 * error, after an inner end, and for a batch without calls. An end whose `request` is null fails,
 * and ends the batch. */
DL_API dl_result dl_ibatch_end(dl_comm* comm, dl_request** request);
/* Forgets the open batch with all that are within it: its calls are never made. dl_rejoin() and
 * dl_finalize() do so, too. */
DL_API void dl_batch_drop(dl_comm* comm);

/* A few small values that the ranks share beside the collectives, such as an address. They lie in
 * the store where the ranks met, until the job ends. Not collective; any thread, any number of
 * threads, but not during dl_rejoin(). Each round and each group has its own keys; communicators
 * that dl_init() makes one after the other share theirs. Keys: 1 to 500 bytes; values: up to 1 MiB.
 * The loss of a rank ends a wait as it ends a collective; other errors do not affect the
 * communicator. */
DL_API dl_result dl_key_set(dl_comm* comm, const char* key, const void* value, size_t bytes);
/* Waits until the key exists. timeout_s: 0: does not wait; <0: as long as an operation may take.
 * DL_ERR_TIMEOUT: the key does not exist. *bytes: the size of the value; at most `room` bytes of it
 * are copied to `value`. */
DL_API dl_result dl_key_get(dl_comm* comm, const char* key, double timeout_s, void* value,
                            size_t room, size_t* bytes);
/* Adds to a decimal number, atomically for all ranks. A missing key counts as 0. */
DL_API dl_result dl_key_add(dl_comm* comm, const char* key, int64_t delta, int64_t* sum);

/* Memory for buffers of collectives that the ranks of one host read in place: they copy it once, or
 * not at all, instead of twice. Zeroed, aligned to pages, at least `bytes` of it (each rank may ask
 * for another amount; 0 is allowed). Collective. Every call takes such buffers, whole or in part,
 * and mixed with others, and gives the same bits. A reduction gains if all ranks give such an `in`
 * (all_reduce: and `out`); any other call gains for each rank that gives such an `in`. Lists of
 * tensors do not gain, nor does an all_reduce of two ranks with a core each if one of them works in
 * place. Over sockets, on several hosts and for other communicators than comm, its groups included,
 * it is ordinary memory; so it is after dl_rejoin(), which keeps its contents.
 * The system commits the memory at once. It belongs to this rank: other ranks can read all of it at
 * any time and cannot write it. A forked child shares it with its parent. DL_ERR_IO: some rank
 * lacks the memory; all ranks get this error, and the communicator stays usable. */
DL_API dl_result dl_alloc(dl_comm* comm, size_t bytes, void** memory);
/* Frees memory of dl_alloc(); dl_finalize() frees the rest. Not collective, but every rank must
 * free at the same place among its collectives, after it has waited for those in the background: a
 * call with memory that another rank has already freed fails with DL_ERR_MISMATCH. NULL is
 * allowed. */
DL_API dl_result dl_free(dl_comm* comm, void* memory);

/* Memory on GPUs. Every collective also takes buffers in the memory of a CUDA device: `in` and
 * `out` on the same GPU, the same GPU in all calls on a communicator, and all ranks alike. A rank
 * without elements in such a call must still give a pointer to device memory. A process with a CUDA
 * driver (libcuda.so.1) recognises such buffers.
 * NCCL (libnccl.so.2, found when first needed) moves the data if every rank has it, in one version,
 * and a GPU of its own. Otherwise, for the bitwise ops, for averages of integers, for products of
 * complex numbers, for reductions of 8-bit floats, and with DLAUNCH_BACKEND=cpu, the data go
 * through the host's memory and the transports that dl_transport() names. Messages always do. Each
 * side's buffer may be on a GPU or on the host; dl_isend() returns when the library has read the
 * buffer, and the wait for dl_irecv() writes it. Sums by NCCL have the order of NCCL, and its MAX
 * and MIN treat NaN as it does. The first such call makes NCCL's communicator; DL_ERR_TIMEOUT if
 * not all ranks come, or NCCL does not connect them. The loss of a rank ends the calls of the
 * others as on the host, and NCCL's communicator with them. An operation that NCCL has not finished
 * at its deadline, with all ranks in it, ends with DL_ERR_PEER_LOST, too: the ranks can repeat it
 * in another round, with another communicator of NCCL.
 *
 * A call begins when the work that `stream` (a cudaStream_t or CUstream of that GPU; NULL: the
 * legacy default stream) holds at the call is done. The result is there when the call returns, or
 * after the wait for its request; see dl_set_stream_ordered(). The stream holds for all later
 * calls, also after dl_rejoin(), and is no argument of each: so one program serves host and device
 * memory, and only one thread at a time uses a communicator anyway. DL_ERR_UNSUPPORTED: this
 * library was built without the headers of CUDA and NCCL. */
DL_API dl_result dl_set_stream(dl_comm* comm, void* stream);

/* on != 0: blocking calls on device memory return when the stream has them, as those of NCCL do.
 * Work that the caller puts in the stream later follows them; the host goes on meanwhile. The
 * caller handles events: the stream waits for one before a call, and records one after it. Calls
 * that go through the host's memory still return when they are done, and so do calls with a
 * request. A call's time limit begins when its stream reaches it. Calls run one after the other
 * whatever their streams: the first one in another stream waits for those before. Up to 64 may be
 * pending at a time. A call that fails later ends the communicator: later calls return its error,
 * once the stream holds no work of the library. Other work in the stream goes on with whatever is
 * in the buffers, so call dl_sync() before you keep results for good, as commits of elastic state
 * do; dl_finalize() waits, too. Do not capture these calls in a CUDA graph. */
DL_API dl_result dl_set_stream_ordered(dl_comm* comm, int on);
/* Waits until all calls that have returned early are done. DL_OK: they have succeeded; otherwise
 * the error that has ended the communicator. Not collective; DL_OK if there is no such call. */
DL_API dl_result dl_sync(dl_comm* comm);

/* How later calls on this communicator move the memory of GPUs: "auto", as above, or "cpu", through
 * the host's memory, as with DLAUNCH_BACKEND. Call it on all ranks, before the first such call;
 * DL_ERR_INVALID after it. */
DL_API dl_result dl_set_backend(dl_comm* comm, const char* backend);

/* CUDA's number of the GPU that holds this memory; -1: host memory, or no driver. */
DL_API int dl_gpu_of(const void* memory);
/* How the collectives of this communicator move the memory of GPUs, the same on all ranks: "nccl"
 * or "host" (calls that NCCL lacks go through the host in any case). "" before the first such call,
 * and for a single rank. */
DL_API const char* dl_gpu_transport(const dl_comm* comm);

/* Copies between the memory of a GPU and the host's, in either direction, after the work that the
 * stream of dl_set_stream() holds at the call; returns when the copy is done. The host's memory
 * need not be pinned: the copy goes through 8 MiB of pinned memory of the library. Between host
 * buffers it is memcpy. Not collective: it uses only the communicator's stream and time limit,
 * works on a broken communicator, and does not break one by a failure. All copies of a communicator
 * use one GPU; DL_ERR_INVALID: both buffers are on GPUs. */
DL_API dl_result dl_copy(dl_comm* comm, void* to, const void* from, size_t bytes);

/* Collective. Makes a communicator of the ranks that give the same color >= 0, in the order of
 * their keys, then of their ranks in comm. With a negative color *group is NULL. It may take as
 * long as the shorter of comm's two time limits. Groups are independent of comm and of each other:
 * they may overlap and run at the same time, and the failure of one leaves the others alone. A
 * group whose ranks share memory on one host costs each of them no thread and at most 64 KiB; a
 * program may have hundreds. A group takes memory for large calls when it first needs it, and
 * groups that do not run at the same time share it. At its first message each rank opens a socket
 * for each other rank, and one descriptor more. Any other group (over several hosts, tcp, or with
 * more than 256 ranks) meets through the store, and has its own connections and thread. */
DL_API dl_result dl_split(dl_comm* comm, int color, int key, dl_comm** group);
/* dl_split() for `size` ranks of comm, in the order of the list, which each of them knows: only
 * they call it, with the same list and tag >= 0. Make groups of the same list one after the other,
 * or with different tags. op_timeout_s: for each operation of the group; <0: as comm's, 0: for
 * ever. DL_ERR_PEER_LOST, at once, if one of them has already left comm. A failure does not affect
 * comm; use another tag for the next attempt, because only some of the ranks may have failed. */
DL_API dl_result dl_group(dl_comm* comm, const int* ranks, int size, int tag, double op_timeout_s,
                          dl_comm** group);

/* The time limit of each operation of comm that this rank begins after this call, and of groups
 * that it makes after this call with op_timeout_s < 0. timeout_s: <0: the initial limit of comm; 0:
 * for ever. An operation keeps the limit of its beginning, and its time counts from the end of the
 * operations before it. The other ranks need not set the same limit. It stays after dl_rejoin().
 * When a limit has passed the call returns DL_ERR_TIMEOUT and dl_last_error() names the missing
 * ranks; comm has ended, on each rank, as after every other error of a collective. Comm's groups
 * and comm's parent go on. Call it on the communicator's thread. */
DL_API dl_result dl_set_op_timeout(dl_comm* comm, double timeout_s);

/* What a program does between its operations. */
typedef enum dl_activity {
  DL_GC = 0,    /* it collects garbage */
  DL_INPUT = 1, /* it waits for input */
} dl_activity;
/* The program has spent this time so, outside libdlring's calls. Where other ranks waited for this
 * one meanwhile, the launcher's ledger (dlaunchctl goodput) names the cause. Any thread. */
DL_API void dl_spent(dl_activity what, double seconds);

/* The text of the calling thread's last failed call on this communicator; "" if none failed. comm
 * NULL: the last failed call without a communicator, such as dl_init. Valid until the thread's next
 * call. */
DL_API const char* dl_last_error(const dl_comm* comm);
/* The lost rank, or -1 if no rank is lost, or which one is not known. */
DL_API int dl_peer_lost(const dl_comm* comm);

/* A sign of progress for dlaunch's --hang-timeout, for programs and phases without collectives of
 * libdlring: call it once a step. Once a worker has sent one, it hangs if it sends no further one
 * for that time. Needs no communicator; any thread and any process below the worker may call it,
 * and as often as it likes: at most ten a second are sent. A thread that does nothing else would
 * hide every hang. Returns 1 if dlaunch reads the heartbeats of this worker, else 0. */
DL_API int dl_heartbeat(void);

/* A number that a program reports, such as its loss. */
typedef struct dl_value {
  const char* name; /* at most 32 bytes of it are sent */
  double value;
} dl_value;
/* How far the program has come: this step, of so many (0: not known), and up to 16 numbers. dlaunch
 * shows those of the lowest rank that reports any, with the rate and the time that is left, on its
 * terminal and in dlaunchctl and the metrics. Call it once a step; each call is a heartbeat, too.
 * At most ten a second are sent, and the last step (step >= total) always; other calls return at
 * once and do not read `values`. Threads, processes and the result are as for dl_heartbeat(). A
 * negative step or total counts as 0. */
DL_API int dl_report_progress(int64_t step, int64_t total, const dl_value* values, size_t count);
/* 1 if dl_report_progress() would send this step: for programs whose numbers cost time, such as a
 * loss that is still on the GPU. */
DL_API int dl_report_due(int64_t step, int64_t total);

DL_API size_t dl_dtype_bytes(dl_dtype dtype); /* 0 for a value outside the enum */
DL_API const char* dl_result_name(dl_result result);
DL_API const char* dl_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif

#include "dlaunch/reductions.h"

#endif /* DLAUNCH_RING_H */

/* libdlring: collectives for the ranks of one job. C API, stable ABI.
 *
 * Every rank makes a communicator with dl_init() and then calls the same collectives in the same
 * order. Calls block until the result is there; the calling thread does the work, beside a thread
 * that exchanges large sums with other hosts. Their twins with an i (dl_iall_reduce) return at once
 * and go on in the background. One communicator is for one thread at a time, with two exceptions:
 * any thread may call dl_abort() at any time, and while one thread is in a collective that blocks
 * another one may send and receive messages.
 *
 * A call returns DL_OK or an error code; dl_last_error() then gives the sentence for people. After
 * any error of a collective other than DL_ERR_INVALID and DL_ERR_UNSUPPORTED the communicator is
 * broken: every later call returns the same error at once. Buffers that were being written are then
 * undefined; input buffers that are not also outputs are untouched.
 *
 * Counts are elements, not bytes. `in` may equal `out` (in place) wherever both are given; other
 * overlaps are DL_ERR_INVALID where they can be seen, and undefined where they cannot. Buffers need
 * the alignment of their element type only. A count of 0 is a valid collective that moves nothing.
 *
 * All ranks get the same bits, and the same bits again when the program is run again with the same
 * number of ranks on as many hosts.
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
typedef struct dl_request dl_request; /* an operation in the background */

typedef enum dl_result {
  DL_OK = 0,
  DL_ERR_INVALID = 1,     /* an argument is wrong: this call did nothing */
  DL_ERR_IO = 2,          /* the system refused: memory, sockets, files */
  DL_ERR_TIMEOUT = 3,     /* the operation's deadline passed; the text says who had not arrived */
  DL_ERR_PEER_LOST = 4,   /* a rank died or left, or its host has been silent for
                             DLAUNCH_LINK_TIMEOUT or 5 s; dl_peer_lost() says which. Or NCCL has
                             failed between the GPUs: the round is over, and no rank is named */
  DL_ERR_MISMATCH = 5,    /* two ranks made different calls; the text names both. Where roots differ
                             it may only be found by the next collective without one */
  DL_ERR_ABORTED = 6,     /* dl_abort() was called on this rank */
  DL_ERR_AUTH = 7,        /* another job, another round or a wrong secret */
  DL_ERR_UNSUPPORTED = 8, /* valid, but not in this build or for this type */
  DL_ERR_PROTOCOL = 9     /* a peer sent bytes that make no sense */
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
  DL_DTYPE_ANY_INT = -0x7fffffff - 1 /* no type: lets every int pass as a value, and be refused */
} dl_dtype;

/* Integer sums and products wrap. AVG divides the sum by the number of ranks (integers: towards
 * zero). MAX and MIN of floats give NaN where any operand is NaN. The bitwise ops are for integers
 * only: DL_ERR_UNSUPPORTED with a float type. 16-bit floats are added in binary32 and rounded once;
 * on several hosts, or over sockets with more than 16 ranks, partial sums are rounded, too (of
 * averages of float16 on several hosts those of each host). */
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
  const char* wire_codec;  /* "none", "bf16", "int8": how float32 sums and averages in all_reduce
                              travel between hosts; lossy. The same on every rank. NULL:
                              DLAUNCH_WIRE_CODEC or "none" */
  int elastic;             /* 1: this process goes on when others are lost: see dl_rejoin() */
} dl_options;

DL_API void dl_options_init(dl_options* options);

/* Joins the job and waits until all ranks have. Collective. url:
 *   NULL or "env://"    the launcher's environment: dlaunch's own (DLAUNCH_RDZV), or RANK,
 *                       WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torchrun and others set them (rank
 *                       0 then listens on MASTER_PORT). Without RANK and WORLD_SIZE: a world of
 *                       one.
 *   "tcp://host:port"   rank 0 listens there, the others connect; rank and size from options.
 *   "tcp://host:port/meeting"  the same, apart from whoever meets there under another name: as
 *                       often as rank 0 likes, one after the other or at the same time. 1 to 64
 *                       letters, digits or one of -_.
 *   "file:///folder"    through files in a folder that all ranks share, new for each job.
 *   "etcd://host:port,host:port/prefix"  through etcd; "etcds://" by TLS. A user, a password and
 *                       files of TLS come from etcdctl's variables (ETCDCTL_USER ...).
 * options may be NULL. On failure *comm is NULL and dl_last_error(NULL) says why.
 * Between hosts the ranks connect to each other by the address that leads to the store, or that
 * DLAUNCH_INTERFACE chooses (eth0, 10.0.0.7, 10.0.0.0/8), on ports that the kernel chooses, or of
 * DLAUNCH_PORT_RANGE (29600-29700). */
DL_API dl_result dl_init(const char* url, const dl_options* options, dl_comm** comm);

/* Leaves in good order and frees the communicator; peers that need this rank later get
 * DL_ERR_PEER_LOST. Not collective. NULL is allowed. */
DL_API void dl_finalize(dl_comm* comm);

/* Makes the pending and all later calls of this rank return DL_ERR_ABORTED and tells the peers, who
 * get DL_ERR_PEER_LOST naming this rank. Any thread; returns at once. */
DL_API void dl_abort(dl_comm* comm);

/* Elastic jobs. A process that set options.elastic and was started by dlaunch (url env://) takes
 * part in rounds: numbered rosters, of which the launcher forms the next one when a member is lost,
 * or when the job is to grow or to shrink. dl_init() then blocks until this process is in a round,
 * and its rank and size are the round's, whatever the environment says. Elsewhere the option has no
 * effect: there is one round for ever.
 *
 * When a member is lost the round is over: a pending collective returns DL_ERR_PEER_LOST, as does
 * every later one, and dl_peer_lost() is the rank. When the job is to grow or to shrink, the round
 * is over, too, but goes on until its members leave: dl_round_over() tells them.
 *
 * dl_rejoin() leaves the round, whether it is over or not, blocks until the launcher has formed the
 * next one, and joins it in place. Rank and size may have changed, and a new process that knows
 * nothing yet may stand in for one that died: the ranks agree on their state before they go on.
 * Every member has to come. version: the number of the newest state that this process holds,
 * growing; 0: none. Groups made by dl_split() stay behind in the old round and are to be freed.
 * So are requests: what is still under way ends with the error of that round, or DL_ERR_ABORTED
 * where it had none, and its buffers are free; dl_wait() and its kin tell it. Not during another
 * call on this communicator, dl_wait() and dl_abort() included. DL_ERR_UNSUPPORTED: no launcher
 * here forms rounds; DL_ERR_IO: it has gone. */
DL_API dl_result dl_rejoin(dl_comm* comm, uint64_t version);
/* Tells the launcher the number of the newest state that this process holds, as dl_rejoin() does:
 * so it knows a job that gets on from one that does not, and how far it is. Cheap enough for each
 * step; without an elastic launcher it does nothing. By the communicator's thread. */
DL_API void dl_progress(dl_comm* comm, uint64_t version);
/* The number of the round, from 1; grows. */
DL_API uint64_t dl_round(const dl_comm* comm);
/* 1: the round is over. Cheap enough for each step. */
DL_API int dl_round_over(const dl_comm* comm);

DL_API int dl_rank(const dl_comm* comm);
DL_API int dl_size(const dl_comm* comm);
/* "shm", "tcp", "shm+tcp" (shared memory on each host, sockets between hosts) or "self": how the
 * collectives of this communicator move data. */
DL_API const char* dl_transport(const dl_comm* comm);

/* How this communicator would do a call, in words for people: the way and its parameters. Moves
 * nothing; not collective. collective: "all_reduce" and so on; op and root count where it has them.
 * Writes at most `size` bytes with the final zero. With DLAUNCH_DEBUG=explain rank 0 prints it to
 * stderr when a call of a new kind or size is made. */
DL_API dl_result dl_explain(dl_comm* comm, const char* collective, size_t count, dl_dtype dtype,
                            dl_op op, int root, char* text, size_t size);

/* out[i] = op over ranks of in[i], i < count, on every rank. */
DL_API dl_result dl_all_reduce(dl_comm* comm, const void* in, void* out, size_t count,
                               dl_dtype dtype, dl_op op);

/* in has size*count elements; out gets this rank's `count` of the reduction: elements
 * [rank*count, (rank+1)*count). In place: out == in + rank*count elements. */
DL_API dl_result dl_reduce_scatter(dl_comm* comm, const void* in, void* out, size_t count,
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

/* in of rank `root` has size*count elements; out of rank r gets elements [r*count, (r+1)*count).
 * `in` of other ranks is not used and may be NULL. In place, on the root: out is its own part of
 * in. */
DL_API dl_result dl_scatter(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            int root);

/* in and out have size*count elements: part p of rank r's `in` becomes part r of rank p's `out`.
 * They must not overlap. */
DL_API dl_result dl_all_to_all(dl_comm* comm, const void* in, void* out, size_t count,
                               dl_dtype dtype);

/* Lists of tensors treated as one buffer; within a host's shared memory without copying them
 * together, over sockets by a copy. Tensor i has counts[i] elements at in[i] and out[i] (which may
 * be the same). The same counts on every rank. What is said of overlaps goes for all tensors of a
 * list together; buffers of a broadcast may overlap if they do so on all ranks. */
DL_API dl_result dl_all_reduce_list(dl_comm* comm, size_t tensors, const void* const* in,
                                    void* const* out, const size_t* counts, dl_dtype dtype,
                                    dl_op op);
DL_API dl_result dl_broadcast_list(dl_comm* comm, size_t tensors, void* const* bufs,
                                   const size_t* counts, dl_dtype dtype, int root);

/* buf of rank `root` becomes everybody's buf. */
DL_API dl_result dl_broadcast(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int root);

/* Returns when every rank has called it. */
DL_API dl_result dl_barrier(dl_comm* comm);

/* Point to point. A message is matched by (peer, tag) in the order of sending; tag >= 0.
 * dl_send returns when buf may be used again, which may be before the peer calls dl_recv.
 * dl_recv: count and dtype must be the sender's, else DL_ERR_MISMATCH. peer != own rank.
 * What peers send is kept until it is asked for, up to 256 MiB of each. What does not fit waits in
 * the connection, with all that was sent after it: to ask for any of that first is DL_ERR_IO, and
 * ranks that dl_send() each other more than that before they receive wait until their deadline. */
DL_API dl_result dl_send(dl_comm* comm, const void* buf, size_t count, dl_dtype dtype, int peer,
                         int tag);
DL_API dl_result dl_recv(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int peer, int tag);

/* Takes the next message with this tag from whoever sent one; *source, unless NULL, says who. */
DL_API dl_result dl_recv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag,
                             int* source);

/* In the background. The buffers belong to the operation until it is done; counts and lists are
 * copied. *request becomes a handle that dl_wait() and its kin free, or NULL where the call returns
 * an error; errors other than those of the arguments come out there.
 * Collectives run one after the other in the order in which they were started or called; all ranks
 * must start and call them in the same order. Messages run beside them and beside each other. A
 * thread of the library does the work, so that it overlaps with the caller's where there is a core
 * for it. dl_finalize() with operations under way is an abort. */
DL_API dl_result dl_iall_reduce(dl_comm* comm, const void* in, void* out, size_t count,
                                dl_dtype dtype, dl_op op, dl_request** request);
DL_API dl_result dl_iall_reduce_list(dl_comm* comm, size_t tensors, const void* const* in,
                                     void* const* out, const size_t* counts, dl_dtype dtype,
                                     dl_op op, dl_request** request);
DL_API dl_result dl_ireduce(dl_comm* comm, const void* in, void* out, size_t count, dl_dtype dtype,
                            dl_op op, int root, dl_request** request);
DL_API dl_result dl_ireduce_scatter(dl_comm* comm, const void* in, void* out, size_t count,
                                    dl_dtype dtype, dl_op op, dl_request** request);
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
DL_API dl_result dl_iall_to_all(dl_comm* comm, const void* in, void* out, size_t count,
                                dl_dtype dtype, dl_request** request);
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
/* *source is written when the request is waited for. */
DL_API dl_result dl_irecv_any(dl_comm* comm, void* buf, size_t count, dl_dtype dtype, int tag,
                              int* source, dl_request** request);

/* Blocks until it is done, frees it and sets *request to NULL. What it returns is the operation's
 * result. *request == NULL: DL_OK at once. A request must be freed before its communicator. Any
 * thread may wait for it or test it, one for each request, beside other calls on its communicator
 * (a message to memory on a GPU excepted). In a forked child the handle is freed and the result is
 * DL_ERR_INVALID, as for any call there: the operation is the parent's. */
DL_API dl_result dl_wait(dl_request** request);
/* *done: whether it is; then as dl_wait(). */
DL_API dl_result dl_test(dl_request** request, int* done);
/* Blocks until it is done, but at most so long (<0: as long as it takes). *done: whether it is;
 * then as dl_wait(). Otherwise DL_OK: the operation goes on, and can be waited for again. */
DL_API dl_result dl_wait_for(dl_request** request, double timeout_s, int* done);
/* Blocks until one of them is done and does as dl_wait() with that one; *index says which. NULL
 * entries are left out; if all are NULL *index is n. */
DL_API dl_result dl_wait_any(size_t n, dl_request** requests, size_t* index);
/* Waits for all of them, and returns the first error in their order. */
DL_API dl_result dl_wait_all(size_t n, dl_request** requests);

/* A few small values that the ranks share beside the collectives, such as an address: they lie
 * where the ranks have met, until the job ends. Not collective; any thread, any number of them, but
 * not during dl_rejoin(). Each round and each group has keys of its own, and communicators that
 * dl_init() makes one after the other have them in common. Keys: 1 to 500 bytes; values: up to 1
 * MiB. When a rank is lost waiting ends as that of a collective does; other errors leave the
 * communicator as it was. */
DL_API dl_result dl_key_set(dl_comm* comm, const char* key, const void* value, size_t bytes);
/* Waits until the key is there; timeout_s: 0: does not wait; <0: as long as an operation may take.
 * DL_ERR_TIMEOUT: it is not. *bytes: how many the value has, of which `room` fit into `value`. */
DL_API dl_result dl_key_get(dl_comm* comm, const char* key, double timeout_s, void* value,
                            size_t room, size_t* bytes);
/* Adds to a decimal number, which a key that is not there has as 0, at once for all ranks. */
DL_API dl_result dl_key_add(dl_comm* comm, const char* key, int64_t delta, int64_t* sum);

/* Memory for buffers of collectives that the ranks of one host read where it lies: they copy it
 * once, or not at all, in place of twice. Zeroed, aligned to pages, at least `bytes` of it (each
 * rank may ask for another amount; 0 is allowed). Collective. Any call takes such buffers, whole or
 * in part, and mixed with others, with the same bits as result; a reduction gains by it where all
 * ranks give such an `in` (all_reduce: and `out`), anything else for each rank whose `in` it is.
 * Lists of tensors do not gain, nor does an all_reduce of two ranks with a core each of which one
 * gives `in` as `out`. Over sockets, on several hosts and for other communicators than comm, groups
 * of it included, it is ordinary memory; so it is after dl_rejoin(), which keeps its contents.
 * The memory is committed at once and belongs to this rank; others can read all of it at any time,
 * none can write it. A forked child shares it with its parent. DL_ERR_IO: some rank lacks the
 * memory; all ranks get this, and the communicator goes on. */
DL_API dl_result dl_alloc(dl_comm* comm, size_t bytes, void** memory);
/* Frees memory of dl_alloc(); dl_finalize() frees what is left. Not collective, but every rank
 * frees at the same place among its collectives, after those in the background have been waited
 * for: giving memory that another rank has freed already is DL_ERR_MISMATCH. NULL is allowed. */
DL_API dl_result dl_free(dl_comm* comm, void* memory);

/* Memory on GPUs. Every collective takes buffers in the memory of a CUDA device in place of the
 * host's: `in` and `out` in that of one GPU, the same one in all calls on a communicator, and all
 * ranks alike. A rank that has no elements in such a call gives some pointer to device memory all
 * the same. Where a process has a CUDA driver (libcuda.so.1) such buffers are recognised.
 * NCCL (libnccl.so.2, found when first needed) moves the data where every rank has it, in one
 * version, and a GPU of its own. Otherwise, for the bitwise ops, for averages of integers, and with
 * DLAUNCH_BACKEND=cpu, it goes through the host's memory and the ways that dl_transport() names.
 * So do messages, of which each side's buffer may be where it likes; dl_isend() returns when the
 * buffer has been read, dl_irecv() writes it when it is waited for.
 * Sums by NCCL have the order of NCCL, and its MAX and MIN treat NaN as it does.
 * The first such call makes NCCL's communicator; DL_ERR_TIMEOUT if not all ranks come, or NCCL does
 * not bring them together. A rank that is lost ends the calls of the others as on the host, and
 * NCCL's communicator with them. So does an operation that all ranks are in and NCCL has not ended
 * when its time is up: DL_ERR_PEER_LOST, for in another round it can be done anew, with another
 * communicator of NCCL.
 *
 * A call begins when what was in `stream` (a cudaStream_t or CUstream of that GPU; NULL: the legacy
 * default stream) at the call is done, and the result is there when it returns, or when its request
 * has been waited for; see dl_set_stream_ordered(). The stream is set for all later calls, also
 * after dl_rejoin(), and not given with each: one program serves host and device memory, and a
 * communicator is for one thread at a time anyway.
 * DL_ERR_UNSUPPORTED: this library was built without the headers of CUDA and NCCL. */
DL_API dl_result dl_set_stream(dl_comm* comm, void* stream);

/* on != 0: calls on device memory that block return when the stream has them, as those of NCCL do,
 * and what is put in the stream later comes after them; the host goes on meanwhile. So events are
 * the caller's own: the stream waits for one before a call, and records one after it. What goes
 * through the host's memory still returns when it is done, and so do calls with a request. A call's
 * time limit begins when its stream comes to it. Calls follow each other whatever their streams:
 * the first one in another stream waits for those before. Up to 64 are under way at a time.
 * A call that fails later ends the communicator: later calls return its error, once nothing of the
 * library is in the stream any more. What else the stream does meanwhile goes on with whatever is
 * in the buffers, so before results are kept for good, ask dl_sync(), as commits of elastic state
 * do; dl_finalize() waits, too. Not to be captured in a CUDA graph. */
DL_API dl_result dl_set_stream_ordered(dl_comm* comm, int on);
/* Waits until all calls that have returned so are done. DL_OK: they are, and well; otherwise the
 * error that has ended the communicator. Not collective; DL_OK where there is no such call. */
DL_API dl_result dl_sync(dl_comm* comm);

/* How later calls on this communicator move the memory of GPUs: "auto", as above, or "cpu", through
 * the host's memory, as with DLAUNCH_BACKEND. On all ranks, before the first such call;
 * DL_ERR_INVALID after it. */
DL_API dl_result dl_set_backend(dl_comm* comm, const char* backend);

/* CUDA's number of the GPU that this memory is on; -1: it is the host's, or there is no driver. */
DL_API int dl_gpu_of(const void* memory);
/* "nccl" or "host": how the collectives of this communicator move the memory of GPUs, the same on
 * all ranks (what NCCL lacks goes through the host all the same). "" before the first of them,
 * and of one rank alone. */
DL_API const char* dl_gpu_transport(const dl_comm* comm);

/* Copies between the memory of a GPU and the host's, either way, after what was in the stream of
 * dl_set_stream() at the call; the copy is there when it returns. The host's needs not be pinned:
 * it goes through 8 MiB of the library's own that are. On the host alone it is memcpy. Not
 * collective: the communicator lends its stream and its time limit, may be broken, and is not by a
 * failure of this. One GPU for all copies of a communicator; DL_ERR_INVALID: both buffers are on
 * GPUs. */
DL_API dl_result dl_copy(dl_comm* comm, void* to, const void* from, size_t bytes);

/* Collective. Makes a communicator of the ranks that give the same color >= 0, in the order of
 * their keys, then of their ranks in comm. With a negative color *group is NULL. It may take as
 * long as the shorter of comm's two time limits. Groups are independent of comm and of each other:
 * they may overlap and be used at the same time, and the failure of one leaves the others alone.
 * A group whose ranks share memory on one host costs each of them no thread and at most 64 KiB; a
 * program may have hundreds. Memory for large calls is taken when a group needs it first, and
 * groups that do not run at the same time use the same. At its first message each rank opens a
 * socket for each other rank, and one descriptor more. Any other group (over several hosts, or
 * tcp) meets through the store, and has connections and a thread of its own. */
DL_API dl_result dl_split(dl_comm* comm, int color, int key, dl_comm** group);
/* The same of `size` ranks of comm, in the order of the list, where each of them knows the others:
 * only they call it, with the same list and tag >= 0. Groups of the same list are made one after
 * the other, or with different tags. op_timeout_s: for each operation of the group; <0: as comm's,
 * 0: for ever. A failure leaves comm as it was; the next attempt needs another tag, for it may have
 * failed on some of them only. */
DL_API dl_result dl_group(dl_comm* comm, const int* ranks, int size, int tag, double op_timeout_s,
                          dl_comm** group);

/* The time limit of each operation of comm that this rank begins after this call, and of groups
 * that it makes after this call with op_timeout_s < 0. timeout_s: <0: the limit that comm was made
 * with; 0: for ever. An operation keeps the limit that it was begun with, and its time counts from
 * when those before it are done. The other ranks need not set the same. Stays after dl_rejoin().
 * When a limit has passed the call returns DL_ERR_TIMEOUT and dl_last_error() names the ranks that
 * did not come; comm has ended, on each rank, as after every other error of a collective. Comm's
 * groups, and what comm is a group of, go on. By the communicator's thread. */
DL_API dl_result dl_set_op_timeout(dl_comm* comm, double timeout_s);

/* What the calling thread's last failed call on this communicator was about; "" if nothing failed.
 * comm NULL: the last failed dl_init. Valid until the thread's next call. */
DL_API const char* dl_last_error(const dl_comm* comm);
/* The rank lost, or -1 while all are there, or where it is not known. */
DL_API int dl_peer_lost(const dl_comm* comm);

DL_API size_t dl_dtype_bytes(dl_dtype dtype); /* 0 for a value outside the enum */
DL_API const char* dl_result_name(dl_result result);
DL_API const char* dl_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif

#endif /* DLAUNCH_RING_H */

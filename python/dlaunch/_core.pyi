"""The manual of Communicator, Request, Persistent and Op.

A call with `out` fills and returns it; without `out` it returns a new array: a tensor for a tensor of PyTorch, an array
of CuPy for one of CuPy, else a NumPy array. `out` may be `x` itself if both have the same number of elements. Each call
has a background twin with an i, such as iall_reduce, which returns a Request at once.

Reductions take int8, uint8, int32, uint32, int64, uint64, float16, bfloat16, float32, float64, complex64, complex128,
and float8_e4m3fn and float8_e5m2 of ml_dtypes; complex numbers have no "max" and "min"; "max", "min" and the bitwise
ones also take bool. All other calls take any elements that are plain memory. <dlaunch/ring.h> says how each call rounds
and fails.
"""

from typing import Any, Callable, List, Literal, Optional, Sequence, Tuple, TypeVar, Union

Array = Any
T = TypeVar("T")
Reduction = Union[Literal["sum", "product", "max", "min", "avg", "band", "bor", "bxor"], "Op"]
Codec = Literal["none", "bf16", "int8", "fp8", "int4", "topk"]
Dtype = Literal["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64",
                "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"]

version: str

def init(url: Optional[str] = None, *, rank: Optional[int] = None, size: Optional[int] = None,
         init_timeout: Optional[float] = None, op_timeout: Optional[float] = None, transport: Optional[str] = None,
         job_id: Optional[str] = None, secret_file: Optional[str] = None, wire_codec: Optional[str] = None,
         elastic: bool = False) -> Communicator:
    """Joins the job and waits until all ranks have joined. Collective.

    url: None or "env://": the environment of the launcher (dlaunch, torchrun and others; without a launcher the world
    has one rank). "tcp://host:port", "tcp://host:port/NAME" (apart from worlds of other names at that port),
    "file:///folder": with rank and size. Times are in seconds; op_timeout=0 sets no limit. elastic: this process goes
    on when others are lost (dlaunch.elastic).
    """

def wait_any(requests: Sequence[Request]) -> int:
    """Waits until one of the requests is done, and returns its index; its wait() then returns at once."""

def heartbeat() -> bool:
    """A sign of progress for dlaunch's --hang-timeout: call it once a step. Once a worker has sent one, it hangs if it
    sends no further one for that time. Needs no communicator; calls cost nothing, because at most ten a second are
    sent. Returns whether dlaunch reads the heartbeats of this worker: False outside of dlaunch."""

def progress(step: int, total: Optional[int] = None, **values: float) -> bool:
    """How far the program has come: this step, of so many, and up to 16 numbers, such as loss=loss.

    dlaunch shows those of the lowest rank that reports any, with the rate and the time that is left, on its terminal and
    in dlaunchctl and the metrics. Call it once a step: at most ten reports a second are sent, and the last step always.
    A call that is not sent leaves its values alone, so that the loss of a GPU does not have to be waited for. Each report
    is a heartbeat, too. Needs no communicator; any thread may call it. Returns whether dlaunch reads the reports of this
    worker: False outside of dlaunch."""

class Op:
    """A reduction of the program's own: function(a, b) takes two NumPy arrays of one dimension and returns the array of
    a op b, or changes b and returns None. `a` has the values of lower ranks, and cannot be written.

    The library calls the function with some elements at a time, as many and as often as it likes, in the thread that
    carries out the call; it must give the same results on all ranks. Its arrays are copies, which it may keep. An
    exception in it ends the call: this rank gets that exception, and the others get PeerLost in this call or the next.
    The arrays of the call must be in host memory, and have a type that reductions take: not bool.
    A Python that ends waits for functions that run, and begins no further ones: it aborts background calls that are not
    done.

    commutative=False: each element is ((x0 op x1) op x2) ... in the order of ranks, wherever they are.
    commutative=True: the function must also be associative; between hosts, and over sockets with more than 16 ranks,
    values of any ranks may then come first and in groups, which moves fewer bytes. dl_op_create() in <dlaunch/ring.h>
    has the details."""
    def __new__(cls, function: Callable[[Any, Any], Any], *, commutative: bool = False) -> Op: ...

def premul_sum(factor: float) -> Op:
    """The sum of values that each rank multiplies by its own factor, for arrays of floats and of complex numbers."""

class Communicator:
    """The ranks of a job, or some of them: made by dlaunch.init(), split() and group(). The end of a with statement
    finalizes it."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def closed(self) -> bool:
        """Whether finalize() was called."""
    @property
    def transport(self) -> str:
        """"shm", "tcp", "shm+tcp" or "self": how collectives move data."""
    @property
    def gpu_transport(self) -> str:
        """"nccl" or "host"; "" before the first call on memory of a GPU."""
    @property
    def round(self) -> int: ...
    @property
    def round_over(self) -> bool: ...
    @property
    def peer_lost(self) -> Optional[int]:
        """The lost rank, or None."""

    def all_reduce(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Array:
        """Each element reduced over all ranks, on every rank."""
    def reduce(self, x: Array, op: Reduction = "sum", root: int = 0, *, out: Optional[Array] = None) -> Optional[Array]:
        """As all_reduce, on the root; None elsewhere."""
    def reduce_scatter(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Array:
        """This rank's part of the reduction. Cuts the first dimension into one part for each rank."""
    def reduce_scatter_v(self, x: Array, counts: Sequence[int], op: Reduction = "sum", *,
                         out: Optional[Array] = None) -> Array:
        """As reduce_scatter, with parts of different lengths: rank r gets counts[r] elements."""
    def all_gather(self, x: Array, *, out: Optional[Array] = None) -> Array:
        """Every rank's array, stacked: the result has one more dimension, the rank."""
    def all_gather_v(self, x: Array, counts: Sequence[int], *, out: Optional[Array] = None) -> Array:
        """Arrays of different lengths, one after the other. counts: each rank's number of elements."""
    def gather(self, x: Array, root: int = 0, *, out: Optional[Array] = None) -> Optional[Array]:
        """As all_gather, on the root; None elsewhere."""
    def gather_v(self, x: Array, counts: Sequence[int], root: int = 0, *,
                 out: Optional[Array] = None) -> Optional[Array]: ...
    def scatter(self, x: Optional[Array], root: int = 0, *, out: Optional[Array] = None) -> Array:
        """This rank's part of the root's array. Other ranks pass None as x, and out."""
    def scatter_v(self, x: Optional[Array], counts: Sequence[int], root: int = 0, *,
                  out: Optional[Array] = None) -> Array:
        """As scatter, with parts of different lengths: rank r gets counts[r] elements."""
    def all_to_all(self, x: Array, *, out: Optional[Array] = None) -> Array:
        """Part p of this rank's array goes to rank p; part r of the result comes from rank r."""
    def all_to_all_v(self, x: Array, in_counts: Sequence[int], out_counts: Sequence[int], *,
                     out: Optional[Array] = None) -> Array:
        """As all_to_all, with parts of different lengths: in_counts[r] elements go to rank r, and out_counts[r] come
        from it."""
    def broadcast(self, x: T, root: int = 0) -> T:
        """Copies the root's array to all ranks, in place."""
    def all_reduce_list(self, xs: Sequence[Array], op: Reduction = "sum", *,
                        out: Optional[Sequence[Array]] = None) -> Sequence[Array]:
        """Treats arrays of one type as one array."""
    def all_reduce_shards(self, xs: Sequence[Array], shards: int, op: Reduction = "sum", *,
                          out: Optional[Array] = None) -> Array:
        """A reduction whose result does not depend on the number of ranks, bit for bit: that of the arrays of all
        virtual shards, such as micro-batches, in an order that only `shards` decides. xs: the arrays of this rank's
        shards, those of own_shards(). `out` may be one of them. A rank without shards gives none, and `out`. Host
        memory only."""
    def compressed_average(self, x: Array, codec: Codec, *, residual: Optional[Array] = None,
                           out: Optional[Array] = None) -> Array:
        """The average of float32 arrays that travel in the codec, on every rank. residual: an array like x, zeros before
        the first call: what the codec loses goes there, and into the next call (error feedback). Host memory only."""
    def all_reduce_some(self, x: Optional[Array], need: int, op: Literal["sum", "avg"] = "sum", *, wait: float = 0,
                        late: Literal["drop", "carry"] = "drop", max_behind: int = 16, slot: int = 0,
                        out: Optional[Array] = None
                        ) -> Tuple[Array, List[int], Literal["none", "in", "dropped", "carried"]]:
        """An all_reduce that does not wait for slow ranks: it is over once `need` ranks have given their arrays and one
        of them has waited for `wait` seconds, or once all ranks have come. A later rank gets the same result, without
        waiting; its array counts nowhere, or with late="carry" the library adds it to what this rank gives in the next
        of its calls with this slot that is in. x None: this rank gives nothing new, and needs `out`. No rank gets more
        than max_behind calls ahead of another.

        Returns the result, how many contributions of each rank are in (the same on every rank; "avg" divides by their
        sum), and what became of this rank's own. A slow rank catches up with the calls that are decided before it
        computes again:

            fate = "none"
            for step in range(steps):
                late = comm.some_behind() > 0 or fate == "carried"
                gradient = None if late else compute(weights)
                mean, given, fate = comm.all_reduce_some(gradient, need, "avg", late="carry", out=out)
                weights -= rate * mean

        dl_all_reduce_some() in <dlaunch/reductions.h> has the details. Host memory only."""
    def some_behind(self) -> int:
        """How many calls of all_reduce_some() are decided that this rank has yet to make."""
    def scan(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Array:
        """Each element reduced over the ranks up to this one."""
    def exscan(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Optional[Array]:
        """Each element reduced over the ranks before this one. Rank 0 returns `out` as it is, or None."""
    def own_shards(self, shards: int, /) -> range:
        """The numbers of this rank's virtual shards."""
    def broadcast_list(self, xs: T, root: int = 0) -> T: ...
    def barrier(self) -> None: ...
    def batch(self) -> Batch:
        """A with statement whose blocking calls and messages begin together at its end:

            with comm.batch():
                comm.send(x, right)
                comm.recv(y, left)
                sums = [comm.all_reduce(gradient) for gradient in gradients]

        The results are there after the statement. Messages run beside the collectives, in any order; small all_reduces
        of one type and operation become one call. The calls must not depend on each other: one that uses memory which
        another one writes raises InvalidError at the end. An exception in the statement drops the whole batch, with
        those around it. A call that was refused makes the end raise InvalidError, too, even if the program has caught
        the exception of the call; then no call is made. Calls with an i, recv_any, all_reduce_some and persistent calls cannot be in a batch, and no
        other thread may use the communicator meanwhile. dl_batch_start() in <dlaunch/ring.h> has the details."""
    def send(self, x: Array, peer: int, tag: int = 0) -> None:
        """Returns when the program may change x, possibly before the peer receives it."""
    def recv(self, out: T, peer: int, tag: int = 0) -> T:
        """`out` must have the number and type of the elements that the peer sends; uint8 matches as many bytes of any."""
    def recv_any(self, out: Array, tag: int = 0) -> int:
        """Takes the next message with this tag, and returns the sender's rank. `out` is as for recv."""

    def iall_reduce(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Request: ...
    def iall_reduce_list(self, xs: Sequence[Array], op: Reduction = "sum", *,
                         out: Optional[Sequence[Array]] = None) -> Request: ...
    def iall_reduce_shards(self, xs: Sequence[Array], shards: int, op: Reduction = "sum", *,
                           out: Optional[Array] = None) -> Request: ...
    def icompressed_average(self, x: Array, codec: Codec, *, residual: Optional[Array] = None,
                            out: Optional[Array] = None) -> Request: ...
    def iscan(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Request: ...
    def iexscan(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Request: ...
    def ireduce(self, x: Array, op: Reduction = "sum", root: int = 0, *, out: Optional[Array] = None) -> Request: ...
    def ireduce_scatter(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Request: ...
    def ireduce_scatter_v(self, x: Array, counts: Sequence[int], op: Reduction = "sum", *,
                          out: Optional[Array] = None) -> Request: ...
    def iall_gather(self, x: Array, *, out: Optional[Array] = None) -> Request: ...
    def iall_gather_v(self, x: Array, counts: Sequence[int], *, out: Optional[Array] = None) -> Request: ...
    def igather(self, x: Array, root: int = 0, *, out: Optional[Array] = None) -> Request: ...
    def igather_v(self, x: Array, counts: Sequence[int], root: int = 0, *,
                  out: Optional[Array] = None) -> Request: ...
    def iscatter(self, x: Optional[Array], root: int = 0, *, out: Optional[Array] = None) -> Request: ...
    def iscatter_v(self, x: Optional[Array], counts: Sequence[int], root: int = 0, *,
                   out: Optional[Array] = None) -> Request: ...
    def iall_to_all(self, x: Array, *, out: Optional[Array] = None) -> Request: ...
    def iall_to_all_v(self, x: Array, in_counts: Sequence[int], out_counts: Sequence[int], *,
                      out: Optional[Array] = None) -> Request: ...
    def ibroadcast(self, x: Array, root: int = 0) -> Request: ...
    def ibroadcast_list(self, xs: Sequence[Array], root: int = 0) -> Request: ...
    def ibarrier(self) -> Request: ...
    def isend(self, x: Array, peer: int, tag: int = 0) -> Request: ...
    def irecv(self, out: Array, peer: int, tag: int = 0) -> Request: ...
    def irecv_any(self, out: Array, tag: int = 0) -> Request: ...

    def all_reduce_init(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Persistent:
        """Makes a persistent call. It returns at once, and is not collective."""
    def reduce_init(self, x: Array, op: Reduction = "sum", root: int = 0, *,
                    out: Optional[Array] = None) -> Persistent: ...
    def reduce_scatter_init(self, x: Array, op: Reduction = "sum", *, out: Optional[Array] = None) -> Persistent: ...
    def all_gather_init(self, x: Array, *, out: Optional[Array] = None) -> Persistent: ...
    def all_to_all_init(self, x: Array, *, out: Optional[Array] = None) -> Persistent: ...
    def broadcast_init(self, x: Array, root: int = 0) -> Persistent: ...
    def barrier_init(self) -> Persistent: ...

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Collective: a communicator of the ranks that give the same color, in the order of their keys. A rank that
        gives None gets None."""
    def group(self, ranks: Sequence[int], *, tag: int = 0, op_timeout: Optional[float] = None) -> Communicator:
        """A communicator of these ranks, in this order; only they call it."""
    def alloc(self, bytes: int) -> Memory:
        """Collective: memory that ranks of one host read in place. numpy.frombuffer(memory, "float32") is an array in
        it. It lives as long as the communicator, and the communicator lives as long as arrays lie in it."""
    def free(self, memory: Memory) -> None:
        """Every rank must call it at the same place among its collectives. Delete the arrays in the memory first."""
    def key_set(self, key: str, value: bytes) -> None:
        """A small value that the ranks share beside the collectives. Any thread."""
    def key_get(self, key: str, timeout: Optional[float] = None) -> bytes:
        """Waits until the key exists. timeout=0: does not wait."""
    def key_add(self, key: str, delta: int) -> int:
        """Adds to a number, atomically for all ranks, and returns the sum."""
    def set_stream(self, stream: Optional[int], *, ordered: bool = False) -> None:
        """The CUDA stream, by its address, that later calls on memory of a GPU follow. ordered: such calls return when
        the stream has them, and sync() waits for them."""
    def sync(self) -> None: ...
    def verify(self) -> None:
        """Collective: with dlaunch --verify the ranks compare the results that they have not compared yet."""
    def set_backend(self, backend: Literal["auto", "cpu"]) -> None: ...
    def rejoin(self, version: int = 0) -> None:
        """Leaves the round and joins the next, with a possibly different rank and size. Finalizes the groups."""
    def progress(self, version: int) -> None:
        """Reports to the launcher how far this process is."""
    def explain(self, collective: str, count: int, dtype: Dtype, *, op: Reduction = "sum", root: int = 0) -> str:
        """Describes how this communicator would do a call."""
    def abort(self) -> None:
        """Ends the pending and all later calls of this rank, and notifies its peers. Any thread."""
    def finalize(self) -> None:
        """Leaves in good order; aborts if requests are pending."""
    def __enter__(self) -> Communicator: ...
    def __exit__(self, *exception: object) -> None: ...

class Request:
    """A background call, which keeps its arrays until it is done."""

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until the call is done; returns its result (irecv_any: the sender's rank), or raises its error.
        timeout, in seconds: raises OperationTimeout after it, and the call goes on. Any thread, one at a time."""
    def test(self) -> bool:
        """Whether it is done."""

class Batch:
    """The result of batch()."""

    def __enter__(self) -> Batch: ...
    def __exit__(self, *exception: object) -> None: ...

class Persistent:
    """A call with arrays that are checked once, for a program that makes it many times. It keeps the arrays. rejoin()
    ends its use."""

    def run(self) -> Any:
        """Makes the call, as the blocking one does, and returns its result: always the same array, with new contents."""

class Memory:
    """The result of alloc(): bytes, with the buffer protocol."""

    def __len__(self) -> int: ...

class State:
    """For dlaunch.elastic."""

    round_over: bool
    commits: int
    own: bytearray
    def own_array(self, name: str, array: Array) -> None: ...
    def keep_own(self, array: Array) -> None: ...
    def set_own(self, array: Array) -> None: ...
    def replicated(self, name: str, array: Array) -> None: ...
    def snapshots(self, folder: str, every: int, keep: int) -> None: ...
    def sync(self) -> None: ...
    def commit(self) -> None: ...
    def restore(self) -> None: ...
    def recover(self) -> None: ...
    def finish(self) -> None: ...
    def sampler(self, name: str, samples: int, batch: int, seed: int) -> int: ...
    def sampler_next(self, number: int) -> Tuple[bytes, int]: ...
    def sampler_set_shards(self, number: int, shards: int) -> None: ...
    def sampler_shard(self, number: int, shard: int) -> bytes: ...
    def sampler_place(self, number: int) -> Tuple[int, int]: ...

def borrow(capsule: object, owner: object) -> Communicator:
    """For dlaunch.torch.elastic: wraps a dl_comm in a PyCapsule of this name. This object keeps `owner`, which
    finalizes the communicator."""
class Outer:
    """For dlaunch.Outer."""

    due: bool
    changes: bool
    steps: int
    in_flight: bool
    shared_bytes: int
    def step(self) -> None: ...
    def finish(self) -> None: ...
    def settle(self) -> None: ...
    def restored(self) -> None: ...

def new_outer(communicator: Communicator, tensors: Sequence[Array], *, inner_steps: int = 500,
              learning_rate: float = 0.7, momentum: float = 0.9, nesterov: bool = True, codec: Codec = "none",
              fragments: int = 1, delay: int = 0, mixing: float = 0.0, sites: Optional[Sites] = None) -> Outer: ...

class Sites:
    """For dlaunch.Sites."""

    info: dict
    def close(self) -> None: ...

def new_sites(communicator: Communicator, *, sites: Optional[str] = None, site: Optional[str] = None,
              grace: Optional[float] = None, timeout: Optional[float] = None, wait: Optional[float] = None,
              linger: Optional[float] = None, journal: Optional[str] = None,
              drops_late: bool = False) -> Sites: ...
def read_journal(path: str, replay: bool, take: Callable[[dict], object]) -> bool: ...
def new_state(communicator: Communicator, commit_every: int = 1, shard_replicas: int = 1) -> State: ...
def measure(communicator: Communicator, x: Array, times: int) -> float: ...
def spent(what: int, seconds: float) -> None: ...

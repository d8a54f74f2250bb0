"""The manual of Communicator and Request.

Wherever a result may be given as `out`, the call fills and returns it; without, it returns a new array: a tensor
for a tensor of PyTorch, an array of CuPy for one of CuPy, else a NumPy array. `out` may be `x` itself where both
have the same number of elements. Each call has a twin with an i, as iall_reduce, which returns a Request at once.

Reductions take int8, uint8, int32, uint32, int64, uint64, float16, bfloat16, float32 and float64; sums and
averages complex64 and complex128, too; "max", "min" and the bitwise ones bool. All other calls take any
elements that are plain memory. <dlaunch/ring.h> says how each call rounds and fails.
"""

from typing import Any, Literal, Optional, Sequence, Tuple, TypeVar

Array = Any
T = TypeVar("T")
Op = Literal["sum", "product", "max", "min", "avg", "band", "bor", "bxor"]
Dtype = Literal["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"]

version: str

def init(url: Optional[str] = None, *, rank: Optional[int] = None, size: Optional[int] = None,
         init_timeout: Optional[float] = None, op_timeout: Optional[float] = None, transport: Optional[str] = None,
         job_id: Optional[str] = None, secret_file: Optional[str] = None, wire_codec: Optional[str] = None,
         elastic: bool = False) -> Communicator:
    """Joins the job and waits until all ranks have. Collective.

    url: None or "env://": what the launcher has put in the environment (dlaunch, torchrun and others; without a
    launcher the world has one rank). "tcp://host:port", "tcp://host:port/meeting" (apart from other meetings at that
    port), "file:///folder": with rank and size. Times are in
    seconds; op_timeout=0 sets no limit. elastic: this process goes on when others are lost (dlaunch.elastic).
    """

def wait_any(requests: Sequence[Request]) -> int:
    """Waits until one of them is done, and returns its index; its wait() then returns at once."""

class Communicator:
    """The ranks of a job, or some of them: made by dlaunch.init(), split() and group(). In a with statement it
    is finalized at the end."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def closed(self) -> bool:
        """Whether it has been finalized."""
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
        """The rank that was lost, or None."""

    def all_reduce(self, x: Array, op: Op = "sum", *, out: Optional[Array] = None) -> Array:
        """Each element reduced over all ranks, on every rank."""
    def reduce(self, x: Array, op: Op = "sum", root: int = 0, *, out: Optional[Array] = None) -> Optional[Array]:
        """The same on the root; None elsewhere."""
    def reduce_scatter(self, x: Array, op: Op = "sum", *, out: Optional[Array] = None) -> Array:
        """This rank's part of the reduction, whose first dimension is cut into as many parts as ranks."""
    def all_gather(self, x: Array, *, out: Optional[Array] = None) -> Array:
        """Every rank's array, stacked: the result has one more dimension, the rank."""
    def all_gather_v(self, x: Array, counts: Sequence[int], *, out: Optional[Array] = None) -> Array:
        """Arrays of different length, one after the other. counts: each rank's number of elements."""
    def gather(self, x: Array, root: int = 0, *, out: Optional[Array] = None) -> Optional[Array]:
        """As all_gather, on the root; None elsewhere."""
    def gather_v(self, x: Array, counts: Sequence[int], root: int = 0, *,
                 out: Optional[Array] = None) -> Optional[Array]: ...
    def scatter(self, x: Optional[Array], root: int = 0, *, out: Optional[Array] = None) -> Array:
        """This rank's part of the root's array. Other ranks give None as x, and out."""
    def all_to_all(self, x: Array, *, out: Optional[Array] = None) -> Array:
        """Part p of this rank's array goes to rank p; part r of the result comes from rank r."""
    def broadcast(self, x: T, root: int = 0) -> T:
        """The root's array becomes everybody's, in place."""
    def all_reduce_list(self, xs: Sequence[Array], op: Op = "sum", *,
                        out: Optional[Sequence[Array]] = None) -> Sequence[Array]:
        """Arrays of one type as if they were one."""
    def broadcast_list(self, xs: T, root: int = 0) -> T: ...
    def barrier(self) -> None: ...
    def send(self, x: Array, peer: int, tag: int = 0) -> None:
        """Returns when x may be changed, which may be before the peer receives it."""
    def recv(self, out: T, peer: int, tag: int = 0) -> T:
        """`out` has the number and type of the elements that the peer sends."""
    def recv_any(self, out: Array, tag: int = 0) -> int:
        """Takes the next message with this tag, and returns the rank that sent it."""

    def iall_reduce(self, x: Array, op: Op = "sum", *, out: Optional[Array] = None) -> Request: ...
    def iall_reduce_list(self, xs: Sequence[Array], op: Op = "sum", *,
                         out: Optional[Sequence[Array]] = None) -> Request: ...
    def ireduce(self, x: Array, op: Op = "sum", root: int = 0, *, out: Optional[Array] = None) -> Request: ...
    def ireduce_scatter(self, x: Array, op: Op = "sum", *, out: Optional[Array] = None) -> Request: ...
    def iall_gather(self, x: Array, *, out: Optional[Array] = None) -> Request: ...
    def iall_gather_v(self, x: Array, counts: Sequence[int], *, out: Optional[Array] = None) -> Request: ...
    def igather(self, x: Array, root: int = 0, *, out: Optional[Array] = None) -> Request: ...
    def igather_v(self, x: Array, counts: Sequence[int], root: int = 0, *,
                  out: Optional[Array] = None) -> Request: ...
    def iscatter(self, x: Optional[Array], root: int = 0, *, out: Optional[Array] = None) -> Request: ...
    def iall_to_all(self, x: Array, *, out: Optional[Array] = None) -> Request: ...
    def ibroadcast(self, x: Array, root: int = 0) -> Request: ...
    def ibroadcast_list(self, xs: Sequence[Array], root: int = 0) -> Request: ...
    def ibarrier(self) -> Request: ...
    def isend(self, x: Array, peer: int, tag: int = 0) -> Request: ...
    def irecv(self, out: Array, peer: int, tag: int = 0) -> Request: ...
    def irecv_any(self, out: Array, tag: int = 0) -> Request: ...

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Collective: a communicator of the ranks that give the same color, in the order of their keys. With None
        this rank is in none."""
    def group(self, ranks: Sequence[int], *, tag: int = 0, op_timeout: Optional[float] = None) -> Communicator:
        """A communicator of these ranks, in this order; only they call it."""
    def alloc(self, bytes: int) -> Memory:
        """Collective: memory that ranks of one host read where it lies. numpy.frombuffer(memory, "float32") is an
        array in it. It lives as long as the communicator, and the communicator as long as arrays lie in it."""
    def free(self, memory: Memory) -> None:
        """By every rank at the same place; before, delete the arrays that lie in it."""
    def key_set(self, key: str, value: bytes) -> None:
        """A small value that the ranks share beside the collectives. Any thread."""
    def key_get(self, key: str, timeout: Optional[float] = None) -> bytes:
        """Waits until the key is there. timeout=0: does not wait."""
    def key_add(self, key: str, delta: int) -> int:
        """Adds to a number at once for all ranks, and returns the sum."""
    def set_stream(self, stream: Optional[int], *, ordered: bool = False) -> None:
        """The stream of CUDA, by its address, that later calls on memory of a GPU follow. ordered: such calls
        return when the stream has them, and sync() waits for them."""
    def sync(self) -> None: ...
    def set_backend(self, backend: Literal["auto", "cpu"]) -> None: ...
    def rejoin(self, version: int = 0) -> None:
        """Leaves the round and joins the next; rank and size may be others then. Groups are finalized."""
    def progress(self, version: int) -> None:
        """Tells the launcher how far this process is."""
    def explain(self, collective: str, count: int, dtype: Dtype, *, op: Op = "sum", root: int = 0) -> str:
        """How this communicator would do a call, in words."""
    def abort(self) -> None:
        """Ends the pending and all later calls of this rank, and tells its peers. Any thread."""
    def finalize(self) -> None:
        """Leaves in good order; with requests under way, by an abort."""
    def __enter__(self) -> Communicator: ...
    def __exit__(self, *exception: object) -> None: ...

class Request:
    """A call in the background, which keeps its arrays until it is done."""

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until it is done; returns what the call does (irecv_any: the rank that sent), or raises its
        error. timeout: OperationTimeout after so many seconds, and the call goes on. Any thread, one at a time."""
    def test(self) -> bool:
        """Whether it is done."""

class Memory:
    """What alloc() returns: bytes, by the buffer protocol."""

    def __len__(self) -> int: ...

class State:
    """For dlaunch.elastic."""

    round_over: bool
    commits: int
    own: bytearray
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
    def sampler_place(self, number: int) -> Tuple[int, int]: ...

def borrow(capsule: object, owner: object) -> Communicator:
    """For dlaunch.torch.elastic: a dl_comm in a PyCapsule of this name. `owner` is kept as long as this is used,
    and finalizes it."""
def new_state(communicator: Communicator, commit_every: int = 1, shard_replicas: int = 1) -> State: ...
def measure(communicator: Communicator, x: Array, times: int) -> float: ...

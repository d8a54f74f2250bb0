"""PyTorch on "dlring". usage: pytorch_ring.py WEIGHTS [VICTIM]

Trains with DDP and writes the weights. With a victim, before that: every call of torch.distributed
beside what must come out of it, and the same training on gloo; after it, the death of that rank.
With DEVICE=cuda all tensors are on the GPU of the local rank; ranks may share one.
"""

import datetime
import os
import pickle
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlaunch.torch


def say(what):
    sys.stdout.write(f"rank {rank} {what}\n")  # in one piece
    sys.stdout.flush()


def refused(words, call, *args):
    try:
        call(*args)
    except (ValueError, RuntimeError) as e:
        line = str(e).splitlines()[0]
        assert words in line.lower(), line  # "Sparse" where torch refuses by itself
        return
    raise AssertionError(f"not refused: {words}")


def equal(got, want):
    assert torch.equal(got, want), f"rank {rank}: got {got}, want {want}"


def calls():
    ranks = torch.arange(size)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
                  torch.int32, torch.int64):
        x = torch.full((2, 3), rank + 1, dtype=dtype)
        dist.all_reduce(x)
        equal(x, torch.full((2, 3), 10, dtype=dtype))
    for op, want in ((dist.ReduceOp.AVG, 2), (dist.ReduceOp.PRODUCT, 24), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, 4),
                     (dist.ReduceOp.BAND, 0), (dist.ReduceOp.BOR, 7), (dist.ReduceOp.BXOR, 4)):
        x = torch.full((5,), rank + 1)
        dist.all_reduce(x, op)
        equal(x, torch.full((5,), want))
    any_of, all_of = torch.tensor([rank == 2, False]), torch.tensor([rank != 2, True])
    dist.all_reduce(any_of)
    dist.all_reduce(all_of, dist.ReduceOp.PRODUCT)
    equal(any_of, torch.tensor([True, False]))
    equal(all_of, torch.tensor([False, True]))
    several = [torch.full((n,), float(rank)) for n in (3, 0, 70000)]
    dist.all_reduce_coalesced(several)
    for x in several:
        equal(x, torch.full(x.shape, 6.0))

    x = torch.full((4,), rank * 1j)  # a type that is only moved
    dist.broadcast(x, 3)
    equal(x, torch.full((4,), 3j))
    x = torch.tensor([rank])
    dist.reduce(x, 1)
    equal(x, torch.tensor([6 if rank == 1 else rank]))
    parts = [torch.empty(2, r + 1) for r in range(size)]  # sizes may differ
    dist.all_gather(parts, torch.full((2, rank + 1), float(rank)))
    for r, part in enumerate(parts):
        equal(part, torch.full((2, r + 1), float(r)))
    x = torch.empty(size * 2, dtype=torch.int64)
    dist.all_gather_into_tensor(x, torch.tensor([rank, -rank]))
    equal(x, torch.stack((ranks, -ranks), 1).flatten())
    parts = [torch.empty(3) for _ in range(size)] if rank == 2 else None
    dist.gather(torch.full((3,), float(rank)), parts, 2)
    if rank == 2:
        equal(torch.stack(parts), ranks.float().repeat(3, 1).t())
    x = torch.empty(3)
    dist.scatter(x, [torch.full((3,), r * 2.0) for r in range(size)] if rank == 1 else None, 1)
    equal(x, torch.full((3,), rank * 2.0))
    dist.reduce_scatter(x, [torch.full((3,), float(rank + r)) for r in range(size)])
    equal(x, torch.full((3,), 6.0 + size * rank))
    dist.reduce_scatter_tensor(x, torch.arange(12.0))
    equal(x, size * torch.arange(12.0)[rank * 3:rank * 3 + 3])
    x = torch.empty(size, dtype=torch.int64)
    dist.all_to_all_single(x, ranks + 10 * rank)
    equal(x, rank + 10 * ranks)
    # Rank r sends p rows to rank p.
    x = torch.empty(size * rank, 2)
    dist.all_to_all_single(x, torch.full((6, 2), float(rank)), [rank] * size, list(range(size)))
    equal(x[:, 0], ranks.float().repeat_interleave(rank))
    parts = [torch.empty(r + rank) for r in range(size)]
    dist.all_to_all(parts, [torch.full((rank + r,), float(rank)) for r in range(size)])
    for r, part in enumerate(parts):
        equal(part, torch.full((r + rank,), float(r)))
    dist.barrier()

    # Tensors that are not contiguous, in other orders on other ranks; what lies between stays.
    def odd(value):
        x = torch.full((6, 5), -1.0)[::2].t() if rank % 2 else torch.full((5, 7), -1.0)[:, 2:5]
        assert not x.is_contiguous()
        x.copy_(value)
        return x
    grid, total = torch.arange(15.0).reshape(5, 3), sum(range(size))
    x = odd(grid * rank)
    dist.all_reduce(x)
    equal(x, grid * total)
    base = torch.full((4, 4), 7.0)
    x = base[:, 1]
    x.fill_(rank)
    dist.all_reduce(x, async_op=True).wait()
    equal(base, torch.tensor([7.0, total, 7.0, 7.0]).repeat(4, 1))
    x = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last) * rank
    dist.broadcast(x, 3)
    equal(x, torch.full((2, 3, 4, 4), 3.0))
    x = odd(grid + rank)
    dist.reduce(x, 2)
    equal(x, grid * size + total if rank == 2 else grid + rank)
    parts = [odd(torch.zeros(5, 3)) for _ in range(size)]
    dist.all_gather(parts, odd(grid * rank))
    for r, part in enumerate(parts):
        equal(part, grid * r)
    wide = torch.zeros(5 * size, 4)[:, 1:]
    dist.all_gather_into_tensor(wide, odd(grid * rank))
    equal(wide, torch.cat([grid * r for r in range(size)]))
    x = odd(torch.zeros(5, 3))
    dist.reduce_scatter_tensor(x, wide)
    equal(x, grid * rank * size)
    dist.scatter(x, [odd(grid + r) for r in range(size)] if rank == 1 else None, 1)
    equal(x, grid + rank)
    gathered = [odd(torch.zeros(5, 3)) for _ in range(size)] if rank == 1 else None
    dist.gather(odd(grid * rank), gathered, 1)
    for r, part in enumerate(gathered or []):
        equal(part, grid * r)
    whole = torch.zeros(size, 2)[:, 1]
    dist.all_to_all_single(whole, torch.full((size, 2), float(rank))[:, 0])
    equal(whole, torch.arange(float(size)))
    x, y = odd(torch.zeros(5, 3)), odd(grid * rank)
    for work in [dist.irecv(x, rank ^ 1), dist.isend(y, rank ^ 1)]:
        work.wait()
    equal(x, grid * (rank ^ 1))

    # Messages, crosswise, and from any rank; a handle that the program drops.
    other = rank ^ 1
    mine, theirs = torch.full((100000,), float(rank)), torch.empty(100000)
    works = [dist.irecv(theirs, other, tag=7), dist.isend(mine, other, tag=7)]
    for work in works:
        work.wait()
    assert all(work.is_completed() for work in works)
    equal(theirs, torch.full((100000,), float(other)))
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            x = torch.empty(1)
            source = dist.recv(x)
            assert x.item() == source
            seen.add(source)
        assert seen == {1, 2, 3}
    else:
        dist.isend(torch.tensor([float(rank)]), 0)

    # In the background, and what DDP does with it.
    x = torch.full((1000,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda f: f.value()[0] / size)
    y = torch.full((10,), float(rank))
    later = dist.all_reduce(y, async_op=True)
    assert future.wait()[0] == 1.5 and later.wait() and later.is_completed()
    equal(y, torch.full((10,), 6.0))

    # Groups, also such as overlap; the same ranks twice.
    groups = [dist.new_group([1, 3]), dist.new_group([0, 1, 2]), dist.new_group([1, 3], timeout=datetime.timedelta(seconds=99)),
              dist.new_group()]
    for members, group in zip(([1, 3], [0, 1, 2], [1, 3], [0, 1, 2, 3]), groups):
        if rank in members:
            x = torch.tensor([rank])
            dist.all_reduce(x, group=group)
            equal(x, torch.tensor([sum(members)]))
            dist.broadcast(x, members[-1], group=group)

    # What is refused, on all ranks before anything is sent.
    refused("share their memory", dist.all_reduce, torch.ones(1, 4).expand(4, 4))
    refused("share their memory", dist.all_gather, [torch.ones(1, 4).expand(4, 4)] * size, torch.ones(4, 4))
    refused("sparse", dist.broadcast, torch.ones(2).to_sparse(), 0)
    refused("sums and averages", dist.all_reduce, torch.ones(2).to_sparse(), dist.ReduceOp.MAX)
    refused("no average", dist.all_reduce, torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
    refused("times the number of ranks", dist.all_gather_into_tensor, torch.empty(5), torch.empty(2))
    refused("float", dist.all_reduce, torch.ones(2), dist.ReduceOp.BOR)
    x = torch.ones(1)
    dist.all_reduce(x)
    equal(x, torch.full((1,), 4.0))


def narrow_types():
    """Types that libdlring lacks are reduced in wider ones."""
    names = ["int16", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"]
    for dtype in [getattr(torch, name) for name in names if hasattr(torch, name)]:
        x = torch.arange(1, 4).to(dtype)
        dist.all_reduce(x)
        equal(x.to(torch.complex128), torch.tensor([4, 8, 12]).to(torch.complex128))
        x = torch.arange(1, 4).to(dtype)
        dist.reduce(x, 2)
        equal(x.to(torch.complex128), (torch.tensor([1, 2, 3]) * (4 if rank == 2 else 1)).to(torch.complex128))
        x = torch.zeros(1, dtype=dtype)
        dist.reduce_scatter(x, [torch.ones(1).to(dtype) for _ in range(size)])
        assert x.to(torch.complex128).item() == 4
    x = torch.tensor([2j, 1 + rank])
    dist.reduce(x, 1, dist.ReduceOp.PRODUCT)  # PyTorch itself refuses the all_reduce
    equal(x, torch.tensor([16 + 0j, 24] if rank == 1 else [2j, 1 + rank]))
    refused("products only", dist.reduce, x, 1, dist.ReduceOp.MAX)
    x = torch.empty(2, dtype=torch.complex64)
    dist.reduce_scatter_tensor(x, torch.tensor([1 + 2j, 3j] * size).conj())  # PyTorch puts the conjugation off
    equal(x, torch.tensor([4 - 8j, -12j]))
    if hasattr(torch, "float8_e4m3fn"):
        x = torch.full((2,), 400.0).to(torch.float8_e4m3fn)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        equal(x.float(), torch.full((2,), 384.0))  # what the type has of 400; the sum is beyond its range
        dist.all_reduce(x)
        assert x.float().isnan().all()
        x = torch.full((2,), 3.0).to(torch.float8_e5m2)
        dist.all_reduce(x, dist._make_nccl_premul_sum(1.25))
        equal(x.float(), torch.full((2,), 16.0))  # 15, rounded once; 3.75 for each rank is between 3.5 and 4
    x = torch.tensor([30000], dtype=torch.int16)
    dist.all_reduce(x)
    assert x.item() == 120000 - 2 * 65536  # wraps
    dist.all_reduce(x.fill_(-rank), dist.ReduceOp.MIN)
    assert x.item() == -3
    if hasattr(dist, "_make_nccl_premul_sum"):
        x = torch.full((2,), float(rank))
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        equal(x, torch.full((2,), 3.0))
        factor = torch.tensor([2.0])
        dist.all_reduce(x, dist._make_nccl_premul_sum([factor] if torch.__version__ < "2" else factor))
        equal(x, torch.full((2,), 24.0))


def sparse_sums():
    """Of tensors that share some elements, have some twice, and are empty on a rank."""
    def of(r):
        at = torch.tensor([[r, r, 4], [0, 0, 1]]) if r else torch.zeros(2, 0, dtype=torch.int64)
        values = torch.full((at.shape[1], 2), float(r + 1))
        return torch.sparse_coo_tensor(at, values, (5, 2, 2))
    x, dense = of(rank), sum(of(r).to_dense() for r in range(size))
    dist.all_reduce(x)
    equal(x.to_dense(), dense)
    x = of(rank)
    work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    dist.all_reduce(torch.ones(1))
    work.wait()
    equal(x.to_dense(), dense / size)
    x = torch.sparse_coo_tensor(torch.tensor([[rank % 2]]), torch.tensor([2 * rank + 1]), (2,))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    equal(x.to_dense(), torch.tensor([6, 10]) // size)
    shapes = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0), (2 + (rank == 1),))
    refused("differ in shape", dist.all_reduce, shapes)


def coalesced():
    """Calls of several tensors, also of several types."""
    mine = [torch.full((2, 2), float(rank)), torch.empty(0), torch.full((rank + 1,), float(rank))]
    lists = [[torch.zeros(2, 2).t(), torch.empty(0), torch.zeros(r + 1)] for r in range(size)]
    dist.all_gather_coalesced(lists, mine)
    for r, parts in enumerate(lists):
        equal(parts[0], torch.full((2, 2), float(r)))
        equal(parts[2], torch.full((r + 1,), float(r)))
    uneven = [torch.full((r + 1,), float(rank)) for r in range(size)]
    x = torch.zeros(rank + 1)
    dist.reduce_scatter(x, uneven)
    equal(x, torch.full((rank + 1,), 6.0))
    if not hasattr(dist, "_coalescing_manager"):
        return
    several = [torch.full((3,), float(rank)), torch.full((2,), rank), torch.full((2,), rank, dtype=torch.int16)]
    with dist._coalescing_manager():
        for x in several:
            dist.all_reduce(x)
    for x in several:
        equal(x, torch.full(x.shape, 6, dtype=x.dtype))
    pairs = [(torch.zeros(size * n), torch.full((n,), float(rank))) for n in (1, 3)]
    with dist._coalescing_manager():
        for whole, part in pairs:
            dist.all_gather_into_tensor(whole, part)
    for whole, part in pairs:
        equal(whole, torch.arange(float(size)).repeat_interleave(part.numel()))
    with dist._coalescing_manager(async_ops=True) as works:
        for whole, part in pairs:
            dist.reduce_scatter_tensor(part, whole)
    works.wait()
    for whole, part in pairs:
        equal(part, torch.full(part.shape, float(size * rank)))


def debugging():
    """What PyTorch's own debugging asks of a back end."""
    group = dist.new_group()
    numbered = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    before = numbered._get_sequence_number_for_group()
    dist.barrier(group)
    assert numbered._get_sequence_number_for_group() == before + 1
    short = datetime.timedelta(seconds=3)
    for _ in range(2):
        group.monitored_barrier(datetime.timedelta(seconds=60))
    # For a rank that comes too late its barrier has ended, and the next one works.
    if rank != 2:
        who = "Rank 2 failed to pass monitoredBarrier in 3000 ms"
        refused(("[rank 0]: " + who).lower(), group.monitored_barrier, short)
        open(f"late.{rank}", "w").close()
    else:
        refused("rank 2 successfully reached monitoredbarrier", late_barrier, group, short)
    dist.barrier()
    if rank != 2:
        os.remove(f"late.{rank}")
    group.monitored_barrier(datetime.timedelta(seconds=60))
    if rank == 0:
        refused("ranks 1, 2, 3 failed to pass monitoredbarrier in 3000 ms", group.monitored_barrier, short, True)
        refused("rank 0 timed out in monitoredbarrier after 0 ms", group.monitored_barrier, datetime.timedelta(0))
        refused("timed out waiting 20ms", dist.irecv(torch.ones(1), 1).wait, datetime.timedelta(milliseconds=20))
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(1), 0)
    everyone = [None] * size
    dist.all_gather_object(everyone, {"rank": rank})
    assert everyone == [{"rank": r} for r in range(size)]


def limits():
    """The time limits of one call and of a group: the group ends, and the others go on."""
    def begin(group):
        given = dist.AllreduceOptions()
        given.timeout = datetime.timedelta(seconds=3)
        return group.allreduce([torch.ones(1)], given)
    def begin_after_set(group):
        dist.set_timeout(datetime.timedelta(seconds=3), group)
        return group.allreduce([torch.ones(1)])
    for call in [begin, begin_after_set] if hasattr(dist, "set_timeout") else [begin]:
        group = dist.new_group()
        dist.barrier(group)
        text = ""
        if rank != 2:
            started = time.monotonic()
            try:
                call(group).wait()
            except RuntimeError as e:
                text = str(e)
            assert text and time.monotonic() - started < 60
        said = [None] * size  # where another rank's time was up first, that rank has told this one
        dist.all_gather_object(said, text)
        assert any("Timed out" in one and "rank 2" in one for one in said), said
        refused("rank", lambda: group.barrier().wait())  # it has ended, also for a rank that comes too late
        dist.barrier()


def recorded():
    """PyTorch's Flight Recorder knows what is done when the program does, and what never ended."""
    if not hasattr(dist.ProcessGroup, "supports_completion_hooks"):  # before 2.15
        return
    def last():
        trace = torch._C._distributed_c10d._dump_fr_trace(backend="dlring")
        return pickle.loads(trace)["entries"][-1]
    for _ in range(20):
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
        entry = last()
        assert entry["state"] == "completed" and entry["retired"], entry
        dist.all_reduce(torch.ones(3))
        entry = last()
        assert entry["state"] == "completed" and entry["retired"], entry
    if rank < 2:
        (dist.send if rank == 0 else dist.recv)(torch.ones(2), 1 - rank)
        entry = last()
        assert entry["is_p2p"] and entry["state"] == "completed", entry
    group = dist.new_group(timeout=datetime.timedelta(milliseconds=300))
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(3), group=group)
            raise AssertionError("three ranks were missing")
        except RuntimeError:
            assert last()["state"] == "scheduled", last()
    dist.barrier()


def splits():
    """split_group: the ranks of a part make it by themselves, in the order of its list."""
    if torch.__version__ < "2.15" or device != "cpu":  # earlier ones split for NCCL alone
        return
    part = dist.split_group(split_ranks=[[3, 1], [2]], timeout=datetime.timedelta(seconds=99))
    if rank in (1, 3):
        assert part.rank() == (0 if rank == 3 else 1)
        x = torch.tensor([rank])
        dist.all_reduce(x, group=part)
        equal(x, torch.tensor([4]))
    assert (part is dist.GroupMember.NON_GROUP_MEMBER) == (rank == 0)
    dist.barrier()


def at_once():
    """Calls that block: in the order of those before them, with a future as the others have, and beside messages
    of other threads."""
    group = dist.new_group()
    for _ in range(20):
        large = torch.full((300_000,), 1.0)
        before = dist.all_reduce(large, group=group, async_op=True)
        x = torch.ones(2)
        dist.all_reduce(x, group=group)
        equal(x, torch.full((2,), 4.0))
        equal(large, torch.full((300_000,), 4.0))
        before.wait()
    if not hasattr(dist.AllreduceOptions(), "asyncOp"):
        return
    given = dist.AllreduceOptions()
    given.asyncOp = False
    x = torch.ones(2)
    work = group.allreduce([x], given)
    assert work.is_completed() or device == "cuda"  # there it follows the stream, in the background
    assert work.wait()
    equal(x, torch.full((2,), 4.0))
    equal(work.get_future().wait()[0], x)
    assert work.get_future().then(lambda of: of.value()[0].sum().item()).wait() == 8
    count = group._get_backend(torch.device(device))._get_sequence_number_for_group
    began = count()
    if rank == 0:  # the others come to the sum when they have the message of this rank
        one = threading.Thread(target=dist.all_reduce, args=(x, ), kwargs={"group": group})
        one.start()
        while count() == began:
            time.sleep(0.001)
        for to in 1, 2, 3:
            dist.send(torch.ones(3), to, group=group)
        one.join()
    else:
        dist.recv(torch.zeros(3), 0, group=group)
        dist.all_reduce(x, group=group)
    equal(x, torch.full((2,), 16.0))
    dist.destroy_process_group(group)


def late_barrier(group, short):
    while not all(os.path.exists(f"late.{other}") for other in (0, 1, 3)):
        time.sleep(0.01)
    group.monitored_barrier(short)


def train(group=None):
    layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64),
                                 torch.nn.Tanh(), torch.nn.Linear(64, 4))
    start = torch.Generator().manual_seed(1)
    with torch.no_grad():  # the same numbers on each device
        for p in layers.parameters():
            p.copy_(torch.rand(p.shape, generator=start, device="cpu") / 2 - 0.25)
    model = DistributedDataParallel(layers, process_group=group, bucket_cap_mb=0.01)  # several buckets
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(rank)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 16, generator=data, device="cpu").to(device)).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), model


# It dies when the others have left the last call that has to succeed, and leave SIGTERM unheard.
def lose(victim, model):
    if rank == victim:
        while not all(os.path.exists(f"ready.{r}") for r in range(size) if r != victim):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's: first the words below
    open(f"ready.{rank}", "w").close()
    try:
        while True:
            model(torch.ones(8, 16)).square().mean().backward()
    except RuntimeError as e:  # autograd's translation of it
        say(f"lost a peer: {e}")
    try:
        dist.barrier()
    except dlaunch.PeerLost as e:
        say(f"lost it again: {e}")


device = os.environ.get("DEVICE", "cpu")
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.set_default_device(device)
dist.init_process_group("dlring", timeout=datetime.timedelta(seconds=120))
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 4 and dist.get_backend() == "dlring"
tested = len(sys.argv) > 2
if tested:
    for part in calls, narrow_types, sparse_sums, coalesced, debugging, limits, recorded, splits, at_once:
        part()
weights, model = train()
if tested:
    # Sums of four are added in another order than gloo's.
    apart = (weights - train(dist.new_group(backend="gloo"))[0]).abs().max().item()
    assert apart < 1e-5, f"{apart} from gloo's weights"
if rank == 0:
    torch.save(weights, sys.argv[1])
dist.barrier()
say("is right")
if tested:
    lose(int(sys.argv[2]), model)
else:
    dist.destroy_process_group()

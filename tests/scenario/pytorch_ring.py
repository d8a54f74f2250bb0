"""PyTorch on "dlring". usage: pytorch_ring.py WEIGHTS [VICTIM]

Trains with DDP and writes the weights. With a victim, before that: every call of torch.distributed
beside what must come out of it, and the same training on gloo; after it, the death of that rank.
With DEVICE=cuda all tensors are on the GPU of the local rank; ranks may share one.
"""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlring_torch


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

    # Messages, crosswise, and from whoever comes; a handle that nobody asks for.
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
    refused("no reduction of", dist.all_reduce, torch.ones(2, dtype=torch.int16))
    refused("no average", dist.all_reduce, torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
    refused("times the number of ranks", dist.all_gather_into_tensor, torch.empty(5), torch.empty(2))
    refused("float", dist.all_reduce, torch.ones(2), dist.ReduceOp.BOR)
    x = torch.ones(1)
    dist.all_reduce(x)
    equal(x, torch.full((1,), 4.0))


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
        say(f"is told: {e}")
    try:
        dist.barrier()
    except dlring_torch.PeerLost as e:
        say(f"is told again: {e}")


device = os.environ.get("DEVICE", "cpu")
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.set_default_device(device)
dist.init_process_group("dlring", timeout=datetime.timedelta(seconds=120))
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 4 and dist.get_backend() == "dlring"
tested = len(sys.argv) > 2
if tested:
    calls()
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

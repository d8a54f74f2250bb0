"""Horovod's API for PyTorch, beside what must come out of it. usage: horovod_calls.py [VICTIM]

With a victim: at the end that rank dies, and the others get an error."""

import itertools
import json
import os
import queue
import signal
import sys
import threading
import time

import torch

import dlaunch
import dlaunch.horovod.torch as hvd
from dlaunch.horovod._channel import Channel
from dlaunch.horovod._world import world

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
          torch.int64)


def equal(got, want):
    want = torch.as_tensor(want, dtype=got.dtype)
    assert torch.equal(got, want), f"rank {rank}: got {got}, want {want}"


def close(got, want, tolerance=1e-6):
    assert torch.allclose(got, want, rtol=tolerance, atol=tolerance), f"rank {rank}: got {got}, want {want}"


def refused(kind, words, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"not refused: {words}")


def places():
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert (hvd.rank(), hvd.size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert (hvd.local_rank(), hvd.local_size()) == (int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    assert (hvd.cross_rank(), hvd.cross_size()) == (int(os.environ["GROUP_RANK"]), int(os.environ.get("HOSTS", "1")))
    assert not (hvd.mpi_threads_supported() or hvd.mpi_built() or hvd.gloo_built() or hvd.nccl_built())


def reductions():
    total, product = sum(range(1, size + 1)), torch.arange(1, size + 1).prod().item()
    for dtype in DTYPES:
        x = torch.full((2, 3), rank + 1, dtype=dtype)
        for op, want in ((hvd.Sum, total), (hvd.Min, 1), (hvd.Max, size), (hvd.Product, product)):
            equal(hvd.allreduce(x, op=op), torch.full((2, 3), want))
        equal(hvd.allreduce(x * 2), torch.full((2, 3), size + 1))
        equal(x, torch.full((2, 3), rank + 1))
    x = torch.full((4,), rank + 1.0)
    equal(hvd.allreduce(x, average=False), [total] * 4)
    equal(hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5), [total] * 4)
    equal(hvd.allreduce(x, op=hvd.Average, prescale_factor=2.0), [size + 1.0] * 4)
    equal(hvd.allreduce(torch.tensor([rank + 1]), op=hvd.Sum, postscale_factor=0.5), [int(total * 0.5)])
    equal(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), [total] * 4)
    equal(hvd.allreduce(torch.tensor(2.5)), 2.5)
    equal(hvd.allreduce(torch.empty(0, 3)), torch.empty(0, 3))
    y = x.clone()
    assert hvd.allreduce_(y, op=hvd.Sum) is y
    equal(y, [total] * 4)
    holes = torch.full((3, 4), rank + 1.0).t()[::2]
    hvd.allreduce_(holes, op=hvd.Sum)
    equal(holes, torch.full((2, 3), total))
    handle = hvd.allreduce_async(x, name="polled")
    while not hvd.poll(handle):
        time.sleep(0.001)
    equal(hvd.synchronize(handle), [(size + 1) / 2] * 4)
    mixed = [torch.full((2,), rank + 1.0), torch.full((3,), rank + 1), torch.full((1,), rank + 1.0)]
    for got, shape in zip(hvd.grouped_allreduce(mixed, op=hvd.Sum), (2, 3, 1)):
        equal(got, [total] * shape)
    hvd.grouped_allreduce_(mixed, op=hvd.Sum)
    equal(mixed[1], [total] * 3)
    refused(ValueError, "complex", hvd.allreduce, torch.zeros(1, dtype=torch.complex64))
    refused(ValueError, "op=", hvd.allreduce, x, average=True, op=hvd.Sum)


def adasum_of(xs):
    """Pair by pair."""
    if len(xs) == 1:
        return xs[0]
    a, b = adasum_of(xs[:len(xs) // 2]), adasum_of(xs[len(xs) // 2:])
    dot = a @ b
    return (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b


def adasum():
    xs = torch.randn(size, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    close(hvd.allreduce(xs[rank], op=hvd.Adasum), adasum_of(list(xs)))
    same = torch.ones(5)
    close(hvd.allreduce(same, op=hvd.Adasum), same)       # what is parallel is averaged
    apart = torch.eye(size)[rank]
    close(hvd.allreduce(apart, op=hvd.Adasum), torch.ones(size))  # what is orthogonal is added


def movements():
    rows = torch.arange(size)
    for dtype in (*DTYPES, torch.bool, torch.int16):
        equal(hvd.allgather(torch.full((rank + 1, 2), rank).to(dtype)),
              rows.repeat_interleave(rows + 1)[:, None].repeat(1, 2).to(dtype))
        equal(hvd.broadcast(torch.tensor([rank]).to(dtype), size - 1), torch.tensor([size - 1]).to(dtype))
    equal(hvd.allgather(torch.full((rank % 2,), rank)), rows[rows % 2 == 1])
    one, other = hvd.grouped_allgather([torch.tensor([rank]), torch.tensor([[0.5 * rank]])])
    equal(one, rows)
    equal(other, rows[:, None] * 0.5)
    x = torch.full((3,), float(rank))
    assert hvd.broadcast_(x, 0) is x
    equal(x, [0.0] * 3)
    refused(ValueError, "first dimension", hvd.allgather, torch.tensor(1))

    equal(hvd.alltoall(rows + 10 * rank), 10 * rows + rank)
    # Rank r sends p + r rows to rank p.
    splits = [p + rank for p in range(size)]
    sent = torch.repeat_interleave(100 * rank + rows, torch.tensor(splits))[:, None].repeat(1, 3)
    got, received = hvd.alltoall(sent, splits=torch.tensor(splits))
    equal(received, rows + rank)
    equal(got[:, 2], torch.repeat_interleave(100 * rows + rank, rows + rank))
    refused(ValueError, "splits", hvd.alltoall, rows, splits=[1] * (size + 1))

    total = sum(range(1, size + 1))
    for count in (3 * size, 3 * size + 1, 1):
        x = torch.arange(count * 2, dtype=torch.float64).reshape(count, 2)
        parts = [count // size + (r < count % size) for r in range(size)]
        mine = x[sum(parts[:rank]):sum(parts[:rank + 1])]
        equal(hvd.reducescatter(x * (rank + 1), op=hvd.Sum), mine * total)
        close(hvd.reducescatter(x * (rank + 1), prescale_factor=0.5), mine * total / size / 2)
    hvd.barrier()


def derivatives():
    g = torch.full((2,), float(rank + 1))
    mean = (size + 1) / 2

    def gradient(call, x, incoming):
        x = x.clone().requires_grad_()
        call(x).backward(incoming)
        return x.grad
    equal(gradient(hvd.allreduce, torch.ones(2), g), [mean] * 2)
    equal(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0), torch.ones(2), g),
          [2 * mean * size] * 2)
    parts = torch.cat([torch.full((r + 1,), float(r)) for r in range(size)])
    equal(gradient(hvd.allgather, torch.ones(rank + 1), parts), [float(rank)] * (rank + 1))
    equal(gradient(lambda x: hvd.broadcast(x, 1), torch.ones(2), g), [mean if rank == 1 else 0.0] * 2)
    equal(gradient(lambda x: hvd.alltoall(x, splits=[2] * size)[0], torch.ones(2 * size),
                   torch.full((2 * size,), rank + 1.0)), torch.arange(1.0, size + 1).repeat_interleave(2))
    # As Horovod defines it.
    for op, factor in ((hvd.Average, 1), (hvd.Sum, size)):
        equal(gradient(lambda x: hvd.reducescatter(x, op=op, prescale_factor=0.5), torch.ones(size),
                       torch.tensor([rank + 1.0])), 0.5 * factor * torch.arange(1.0, size + 1))
    one, other = torch.ones(1, requires_grad=True), torch.ones(2, requires_grad=True)
    sum(x.sum() for x in hvd.grouped_allreduce([one, other], op=hvd.Sum)).backward()
    equal(other.grad, [float(size)] * 2)


def other_orders():
    count = 40
    order = torch.randperm(count, generator=torch.Generator().manual_seed(rank)).tolist()
    handles = {i: hvd.allreduce_async(torch.full((i,), float(rank * i)), name=f"t{i}", op=hvd.Sum) for i in order}
    for i in reversed(order):
        equal(hvd.synchronize(handles[i]), [float(i * sum(range(size)))] * i)
    kinds = [lambda: hvd.allreduce_async(torch.ones(3), name="x", op=hvd.Sum),
             lambda: hvd.allgather_async(torch.ones(1), name="x"),
             lambda: hvd.broadcast_async(torch.ones(1), 0, name="x"),
             lambda: hvd.reducescatter_async(torch.ones(size), name="x", op=hvd.Sum)]
    places = list(itertools.permutations(range(4)))[rank * 5]
    handles = {i: kinds[i]() for i in places}
    for i, want in enumerate(([size] * 3, [1] * size, [1], [size])):
        equal(hvd.synchronize(handles[i]), want)
    if rank == size - 1:  # it keeps the others' under way
        hvd.barrier()
    handle = hvd.allreduce_async(torch.ones(1), name="twice")
    if rank < size - 1:
        refused(ValueError, "already running", hvd.allreduce_async, torch.ones(1), name="twice")
        hvd.barrier()
    hvd.synchronize(handle)


def mistakes():
    refused(hvd.HorovodInternalError, "allreduce of 'shapes': the ranks disagree on the shape: ", hvd.allreduce,
            torch.ones(2 + (rank == 1)), name="shapes")
    refused(hvd.HorovodInternalError, "rank 1: int32", hvd.allreduce,
            torch.ones(2, dtype=torch.int32 if rank == 1 else torch.float32), name="types")
    refused(hvd.HorovodInternalError, "root rank: rank 0: 0; rank", hvd.broadcast, torch.ones(2), min(rank, 1),
            name="roots")
    refused(hvd.HorovodInternalError, "reduction op", hvd.allreduce, torch.ones(2), name="ops",
            op=hvd.Max if rank == 1 else hvd.Sum)
    refused(hvd.HorovodInternalError, "number of tensors", hvd.grouped_allreduce, [torch.ones(2)] * (1 + (rank == 1)),
            name="group")
    refused(hvd.HorovodInternalError, "[any, 2]", hvd.allgather, torch.ones(1, 2 + (rank == 1)), name="rows")
    equal(hvd.allreduce(torch.ones(1), name="shapes"), [1.0])  # and all goes on


def join_by_two_threads():
    """One of them may."""
    outcomes = queue.Queue()

    def join():
        try:
            outcomes.put(hvd.join())
        except ValueError as error:
            outcomes.put(error)
    for _ in range(2):
        threading.Thread(target=join).start()
    refusal = outcomes.get()
    assert "join() is already running" in str(refusal), refusal
    open(f"refused.{size}", "x").close()
    return outcomes.get()


def joining():
    done = 0
    for _ in range(2 + rank):
        x = hvd.allreduce(torch.full((2,), 1.0), name=f"step{done}", op=hvd.Sum)
        equal(x, [float(sum(2 + r > done for r in range(size)))] * 2)
        done += 1
    if rank == size - 1:
        equal(hvd.allgather(torch.tensor([7]), name="left"), [7])
        equal(hvd.reducescatter(torch.ones(size), name="rest", op=hvd.Sum), [1.0])
    if rank == size - 1:  # the last one to join
        while not os.path.exists(f"refused.{size}"):
            time.sleep(0.01)
    last = join_by_two_threads() if rank == 0 else hvd.join()
    assert last == size - 1, last
    equal(hvd.allreduce(torch.ones(1), name="step0", op=hvd.Sum), [float(size)])


def process_sets():
    first, last = hvd.add_process_set([0, 1]), hvd.ProcessSet([size - 1])
    hvd.add_process_set(last)
    new = size > 2  # or all ranks, which have a process set already
    assert (hvd.process_set_by_id(first.process_set_id) is first) == new and len(hvd.process_sets()) == 2 + new
    assert (first.size(), first.included(), first.rank()) == (2, rank < 2, rank if rank < 2 else -1)
    if first.included():
        equal(hvd.allreduce(torch.tensor([rank + 1]), op=hvd.Sum, process_set=first), [3])
        equal(hvd.allgather(torch.tensor([rank]), process_set=first), [0, 1])
        equal(hvd.broadcast(torch.tensor([rank]), 1, process_set=first), [1])
        assert hvd.allgather_object(rank, process_set=first) == [0, 1]
    else:
        refused(ValueError, "is not in", hvd.allreduce, torch.ones(1), process_set=first)
    if last.included():
        equal(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=last), [1.0])
    odd = hvd.add_process_set(list(range(1, size, 2)))
    if odd.included():
        equal(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=odd), [float(size // 2)])
        hvd.barrier(process_set=odd)
    assert hvd.remove_process_set(odd) and odd.process_set_id is None
    assert not hvd.remove_process_set(hvd.global_process_set)
    refused(ValueError, "not registered", hvd.allreduce, torch.ones(1), process_set=hvd.ProcessSet([0, 1]))


def everybody_the_same():
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for values in hvd.allgather_object([p.tolist() for p in model.parameters()]):
        assert values == [p.tolist() for p in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (rank + 1), betas=(0.5 + 0.1 * rank, 0.9))
    if rank == 0:
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.1 and optimizer.param_groups[0]["betas"] == (0.5, 0.9)
    exp_avg = [optimizer.state[p]["exp_avg"] for p in model.parameters()]
    for values in hvd.allgather_object([x.tolist() for x in exp_avg]):
        assert values == [x.tolist() for x in exp_avg]
    assert hvd.broadcast_object({"rank": rank, "big": "x" * 5000}, root_rank=1) == {"rank": 1, "big": "x" * 5000}
    assert hvd.allgather_object("y" * rank) == ["y" * r for r in range(size)]


def batch_norm():
    x = torch.randn(4 * size, 3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole, mine = torch.nn.BatchNorm1d(3).double(), hvd.SyncBatchNorm(3).double()
    ours = x[4 * rank:4 * rank + 4].clone().requires_grad_()
    x.requires_grad_()
    want, got = whole(x), mine(ours)
    (want ** 3).sum().backward()
    (got ** 3).sum().backward()
    close(got, want[4 * rank:4 * rank + 4])
    close(ours.grad, x.grad[4 * rank:4 * rank + 4])
    close(hvd.allreduce(mine.weight.grad, op=hvd.Sum), whole.weight.grad)
    close(mine.running_var, whole.running_var)
    mine.eval()
    close(mine(ours), whole.eval()(x)[4 * rank:4 * rank + 4])


def timeline():
    hvd.start_timeline("own.json")
    hvd.synchronize(hvd.allreduce_async(torch.ones(1), name="seen"))
    hvd.stop_timeline()
    if rank == 0:
        with open("own.json", encoding="utf-8") as file:
            assert "seen" in [event["args"]["name"] for event in json.load(file) if event["ph"] == "M"]


def stalls():
    """After HOROVOD_STALL_CHECK_TIME_SECONDS a warning names the late rank."""
    if rank == 1:
        while not os.path.exists("stalled"):
            time.sleep(0.01)
    hvd.allreduce(torch.ones(1), name="late")


def goodbyes():
    """After a rank's last message none of its threads sends: the channel is about to be closed."""
    channel = Channel(world.comm.group(range(size), op_timeout=0))
    if rank == 0:
        assert sorted(channel.receive() for _ in range(size - 1)) == [(other, "goodbye") for other in range(1, size)]
    else:
        channel.send([0], "goodbye", last=True)
        refused(dlaunch.Error, "is closed", channel.send, [0], "more")
    channel.close()
    refused(dlaunch.Error, "is closed", channel.send, [0], "more")


def shut_down_under_load():
    """Threads submit until shutdown, and each gets an error."""
    done, ends = [0] * 3, queue.Queue()

    def submit(thread):
        try:
            while True:
                hvd.allreduce(torch.ones(1), name=f"load{thread}")
                done[thread] += 1
        except (hvd.HorovodInternalError, ValueError) as error:  # ValueError: without Horovod
            ends.put(error)
    for thread in range(len(done)):
        threading.Thread(target=submit, args=[thread], daemon=True).start()
    while min(done) < 5 and ends.empty():
        time.sleep(0.001)
    hvd.shutdown()
    for _ in done:
        ends.get(timeout=60)
    assert not hvd.is_initialized()


def after_a_loss(victim):
    if rank == victim:  # once the others have come so far
        while not all(os.path.exists(f"ready.{size}.{other}") for other in range(size) if other != victim):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    open(f"ready.{size}.{rank}", "x").close()
    for _ in range(2):
        try:
            hvd.allreduce(torch.ones(1))
        except hvd.HorovodInternalError as error:
            assert type(error.__cause__).__name__ == "PeerLost", repr(error.__cause__)
            print(f"told: {error}", flush=True)
        else:
            raise AssertionError("no error names a lost rank")
    os._exit(3)


for victim in map(int, sys.argv[1:2]):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's SIGTERM may come before the error
try:
    hvd.rank()
except ValueError as error:
    assert "not been initialized" in str(error)
hvd.init()
rank, size = hvd.rank(), hvd.size()
for part in (places, reductions, adasum, movements, derivatives, other_orders, mistakes, joining, process_sets,
             everybody_the_same, batch_norm, timeline, goodbyes, stalls):
    part()
    hvd.barrier()
    if rank == 0:
        print(part.__name__, "is right", flush=True)
shut_down_under_load()
hvd.init()
equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), [float(size)])
if rank == 0:
    print("a second time is right", flush=True)
if sys.argv[1:]:
    after_a_loss(int(sys.argv[1]))

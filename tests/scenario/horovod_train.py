"""Trainings with Horovod's DistributedOptimizer come to the weights of one process that has the whole batch."""

import contextlib
import time
import warnings

import torch

import dlaunch.horovod.torch as hvd
from dlaunch.horovod._world import world

PER_RANK, STEPS = 4, 5


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 6, sparse=True)
        self.first, self.unused, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(2, 2), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(self.words(x).mean(1))))


def batch(step, size):
    chosen = torch.Generator().manual_seed(step)
    x = torch.randint(0, 10, (PER_RANK * size, 5), generator=chosen)
    return x, torch.randint(0, 3, (PER_RANK * size,), generator=chosen)


def train(wrap, parts, passes=1, clips=False, scale=1.0):
    """parts: of a global batch, which this process goes through."""
    torch.manual_seed(7)
    model = Net()
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.5), model)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = batch(step, hvd.size())
        for part in parts:
            rows = slice(part * PER_RANK // passes, (part + 1) * PER_RANK // passes)
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows]) * scale / len(parts)
            loss.backward()
        if clips:
            getattr(optimizer, "synchronize", lambda: None)()
            torch.nn.utils.clip_grad_norm_(model.first.parameters(), 0.01)
        with getattr(optimizer, "skip_synchronize", contextlib.nullcontext)() if clips else contextlib.nullcontext():
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def same(got, want, tolerance, what):
    for a, b in zip(got, want):
        assert torch.allclose(a, b, rtol=tolerance, atol=tolerance), f"{what}: {(a - b).abs().max()}"
    for weights in hvd.allgather_object([p.tolist() for p in got]):
        assert weights == [p.tolist() for p in got], f"{what}: the ranks have other weights"


def alone(**options):
    return train(lambda optimizer, model: optimizer, range(hvd.size()), **options)


def distributed(passes=1, clips=False, scale=1.0, **options):
    def wrap(optimizer, model):
        return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                        backward_passes_per_step=passes, **options)
    mine = range(hvd.rank() * passes, (hvd.rank() + 1) * passes)
    return train(wrap, mine, passes, clips, scale)


def groups_of(model_parameters):
    return [model_parameters[1:3], model_parameters[5:7]]


def within_a_process_set(op):
    """Other ranks train alone. What goes into one direction is averaged by Adasum, too."""
    even = hvd.add_process_set(list(range(0, hvd.size(), 2)))
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=op,
                                         process_set=even)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.full((1, 1), hvd.rank() + 1.0)).sum().backward()
        optimizer.step()
    mean = sum(rank + 1.0 for rank in even.ranks) / even.size() if even.included() else hvd.rank() + 1.0
    assert torch.allclose(model.weight, torch.tensor(1 - 2 * 0.1 * mean)), (op, model.weight, mean)
    hvd.remove_process_set(even)


def without_gradients():
    model = torch.nn.Linear(1, 1).requires_grad_(False)
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), groups=2).step()


def beside_nameless_calls():
    """The gradients of parameters without names are other collectives than calls without names."""
    model = torch.nn.Linear(2, 3)
    torch.nn.init.ones_(model.bias)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def ranks():
        return hvd.allreduce(torch.ones(1), op=hvd.Sum)
    # Rank 0 makes the call before the others.
    number = ranks() if hvd.rank() == 0 else None
    model(torch.ones(1, 2)).sum().backward()
    number = number if hvd.rank() == 0 else ranks()
    optimizer.step()
    assert number == hvd.size(), number
    assert torch.allclose(model.bias, torch.full((3,), 0.9)), model.bias


class Breaks:
    """A timeline whose fault ends the thread that leads, once all ranks wait for the same collective."""

    def __init__(self):
        self.left = hvd.size()

    def requested(self, rank, request):
        self.left -= request["name"] == "fault"
        if self.left == 0:
            raise RuntimeError("a fault of the leading thread")

    def begin(self, response):
        pass

    end = begin


def a_fault_of_the_lead():
    if hvd.rank() == 0:
        world.engine.set_timeline(Breaks())
    hvd.barrier()
    begin = time.monotonic()
    for _ in range(2):
        try:
            hvd.allreduce(torch.ones(1), name="fault")
        except hvd.HorovodInternalError as error:
            kind, words = ("RuntimeError", "leading thread") if hvd.rank() == 0 else ("PeerLost", "rank 0")
            assert type(error.__cause__).__name__ == kind and words in str(error), (error, error.__cause__)
        else:
            raise AssertionError("a rank has not learned that rank 0's thread is gone")
    assert time.monotonic() - begin < 20
    print("rank", hvd.rank(), "knows of the fault", flush=True)


def main():
    hvd.init()
    beside_nameless_calls()  # while the numbers of calls without names are those of the parameters
    want = alone()
    same(distributed(), want, 1e-5, "average")
    same(distributed(op=hvd.Sum, scale=1 / hvd.size()), want, 1e-5, "sum")
    same(distributed(gradient_predivide_factor=float(hvd.size())), want, 1e-5, "predivide")
    same(distributed(compression=hvd.Compression.fp16), want, 5e-3, "fp16")
    same(distributed(passes=2), want, 1e-5, "two passes")
    same(distributed(groups=3), want, 1e-5, "groups")
    same(distributed(sparse_as_dense=True), want, 1e-5, "sparse as dense")
    in_lists = {}

    def wrap(optimizer, model):
        in_lists["optimizer"] = hvd.DistributedOptimizer(optimizer, groups=groups_of(list(model.parameters())))
        return in_lists["optimizer"]
    same(train(wrap, [hvd.rank()]), want, 1e-5, "lists of groups, without names")
    same(distributed(op=hvd.Sum, groups=2, scale=1 / hvd.size(), passes=2), want, 1e-5, "sum in groups")
    clipped = alone(clips=True)
    assert not torch.allclose(clipped[1], want[1], rtol=1e-3), "clipping has changed nothing"
    same(distributed(clips=True), clipped, 1e-5, "clipped")

    optimizer = in_lists["optimizer"]
    assert isinstance(optimizer, torch.optim.SGD)
    model = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model(torch.ones(1, 2)).sum().backward()
    for mistake, words in ((optimizer.zero_grad, "zero_grad() was called"),
                           (lambda: model(torch.ones(1, 2)).sum().backward(), "backward_passes_per_step")):
        try:
            mistake()
        except AssertionError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"not refused: {words}")
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(w.message) for w in told), told
    for wrong in ([("a", p) for p in model.parameters()], list(model.named_parameters())[:1]):
        try:
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), wrong)
        except ValueError as error:
            assert "duplicates" in str(error) or "not named" in str(error), error
        else:
            raise AssertionError("wrong names were taken")

    # Adasum of steps into one direction is that step.
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 1, bias=False)
    start = model.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(),
                                         op=hvd.Adasum)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert torch.allclose(model.weight, start - 0.1), (model.weight, start)
    for op in hvd.Average, hvd.Adasum:
        within_a_process_set(op)
    without_gradients()
    if hvd.rank() == 0:
        print("trainings are right", flush=True)
    a_fault_of_the_lead()


main()

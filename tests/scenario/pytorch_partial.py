"""dlaunch.torch.Partial: the last of four ranks is slow. After each step all ranks have the same parameters, bit for
bit.
The gradient of rank r is 16^r, times a number of the element, so that a sum says how many gradients of each rank are in
it: each gradient is counted once, or with "drop" never, and in its own step.
usage: pytorch_partial.py TRAINING... [die]: trains in these ways, one after the other. A TRAINING is one of
drop:STEPS:MS, carry:STEPS:MS: a step of the last rank takes three times MS milliseconds, and one of another rank MS.
behind: the others make so many steps as max_behind says without the last rank.
die: the last rank dies in the tenth step."""
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlaunch.torch

if "die" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's SIGTERM may come before the error
torch.set_default_dtype(torch.float64)  # what averages keep and send is float32 in any case
dist.init_process_group("dlring")
rank, size = dist.get_rank(), dist.get_world_size()
SHAPES = (70, 30), (50,), (40, 40), (9,), (6, 4, 3, 3), (60, 50)


class Numbers(torch.nn.Module):
    """The gradient of each element is the input times a number of the element: 1, 2, 4 or 8."""

    def __init__(self):
        super().__init__()
        parts = [torch.zeros(shape, dtype=torch.float32) for shape in SHAPES]
        parts = [part.to(memory_format=torch.channels_last) if part.dim() == 4 else part for part in parts]
        self.parts = torch.nn.ParameterList(map(torch.nn.Parameter, parts))
        self.factors = [2.0 ** (torch.arange(part.numel()) % 4).view(part.shape).float() for part in parts]

    def forward(self, x):
        return sum((part * factor).sum() for part, factor in zip(self.parts, self.factors)) * x


dist._DEFAULT_FIRST_BUCKET_BYTES = 4000


def digits_of(number):
    """How many gradients of each rank are in a sum."""
    return [int(number) // 16**of % 16 for of in range(size)]


class Training:
    def __init__(self, late, steps, ms):
        self.late, self.steps, self.ms = late, steps, ms
        self.model = Numbers()
        self.net = DistributedDataParallel(self.model, bucket_cap_mb=0.01)
        if late == "behind":
            self.averages = dlaunch.torch.Partial(self.model, need=lambda ranks: ranks - 1, max_behind=2)
        else:
            self.averages = dlaunch.torch.Partial(self.model, may_miss=1, late=late)
        self.averages.register(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0)
        self.given, self.most = [], 0        # whether this rank gave a gradient, by step
        self.taken, self.hashes = [], []     # by step: how many gradients of each rank were in the average

    def take_step(self):
        contributions = self.averages.contributions
        sums = []
        for part, factor, count in zip(self.model.parts, self.model.factors, contributions):
            mean = part.grad.flatten()[0]  # its factor is 1
            assert (part.grad == mean * factor).all(), part.shape
            sums.append(digits_of(round(float(mean) * count)))
            assert sum(sums[-1]) == count, (sums[-1], count)
        self.taken.append(sums)
        self.optimizer.step()
        weights = torch.cat([part.detach().flatten() for part in self.model.parts])
        self.hashes.append(weights.view(torch.int32).double().mean())
        return max(contributions)

    def averages_of(self, step):
        """Whether the rank gives a gradient."""
        self.optimizer.zero_grad()
        if self.averages.late:
            self.averages.skip(self.net)
            return False
        if self.late == "behind" and step == 4 and rank == size - 1:
            dist.distributed_c10d._get_default_store().wait(["ahead"], datetime.timedelta(seconds=60))
        time.sleep(self.ms * (3 if rank == size - 1 else 1) / 1000)
        self.net(torch.tensor(float(16**rank))).backward()
        if self.late == "behind" and step == 5 and rank == 0:  # two whole steps without the last rank
            dist.distributed_c10d._get_default_store().set("ahead", "yes")
        return True

    def train(self):
        begin = time.monotonic()
        for step in range(self.steps):
            if "die" in sys.argv and step == 10 and rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                gives = self.averages_of(step)
            except Exception as error:
                sys.exit(f"ends with {type(error).__name__}: {error}")
            self.given.append(gives)
            self.most = max(self.most, self.take_step())
        took = time.monotonic() - begin
        assert len(self.averages._last_buckets) > 1
        if self.averages.finish(self.net):
            self.take_step()
        else:
            self.hashes.append(self.hashes[-1])
        if self.late == "carry":
            assert not self.averages.own["number"].any() and not self.averages.own["kept"].any()
        of_carried = self.check_all()
        if rank == size - 1:
            print(f"{self.late}: {sum(self.given)} given, {len(self.given) - sum(self.given)} skipped, at most {self.most} in "
                  f"an average, {of_carried} carried; {1000 * took / self.steps:.1f} ms a step", flush=True)

    def check_all(self):
        """Compares what all ranks have seen. Returns how many gradients were carried."""
        everything = [None] * size
        dist.all_gather_object(everything, (self.given, self.hashes, self.taken))
        assert len({tuple(map(float, one[1])) for one in everything}) == 1, "the ranks have different parameters"
        assert all(one[2] == self.taken for one in everything)
        of_carried = 0
        for part in range(len(SHAPES)):
            for of in range(size):
                in_step = [sums[part][of] for sums in self.taken]
                gave = [int(one) for one in everything[of][0]]
                if self.late == "carry":
                    assert sum(in_step) == sum(gave), (part, of, in_step, gave)
                    # None is in an average before it is given.
                    assert all(sum(in_step[:step]) <= sum(gave[:step]) for step in range(self.steps + 1))
                    of_carried += sum(was_in > did for was_in, did in zip(in_step, gave + [0]))
                else:
                    assert all(was_in <= did for was_in, did in zip(in_step, gave)), (part, of, in_step, gave)
        return of_carried

    def check_refusals(self):
        def refused(says, **words):
            try:
                dlaunch.torch.Partial(self.model, **words)
            except ValueError as error:
                assert says in str(error), error
                return
            raise AssertionError(f"not refused: {words}")

        refused("one of may_miss and need", late="drop")
        refused("one of may_miss and need", may_miss=1, need=1)
        refused("may_miss is -1", may_miss=-1)
        refused(f"need is {size + 1}, and must be between 1 and the number of ranks, which is {size}", need=size + 1)
        refused("need is 0", need=lambda ranks: ranks - size)
        try:
            self.averages.register(DistributedDataParallel(torch.nn.BatchNorm1d(3)))
            raise AssertionError("buffers were taken")
        except ValueError as error:
            assert "broadcast_buffers=False" in str(error)


for way in sys.argv[1:]:
    if way == "die":
        continue
    late, steps, ms = way.split(":") if ":" in way else (way, 8, 0)
    training = Training(late, int(steps), float(ms))
    training.train()
    training.check_refusals()
dist.destroy_process_group()

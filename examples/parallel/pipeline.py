"""Pipeline parallelism: each rank has one layer, and micro-batches go through the ranks like through an assembly line.

    $ dlaunch --nproc 3 pipeline.py
    [0] GPipe: F0 F1 F2 F3 B0 B1 B2 B3, keeps at most 4
    [0] GPipe: bubble … measured, 0.33 by (p - 1) / (m + p - 1)
    [0] 1F1B: F0 F1 F2 B0 F3 B1 B2 B3, keeps at most 3
    [0] 1F1B: bubble … measured, 0.33 by (p - 1) / (m + p - 1)
    [0] the gradients equal those of the unsplit network
    [1] GPipe: F0 F1 F2 F3 B0 B1 B2 B3, keeps at most 4
    [1] 1F1B: F0 F1 B0 F2 B1 F3 B2 B3, keeps at most 2
    [1] the gradients equal those of the unsplit network
    [2] GPipe: F0 F1 F2 F3 B0 B1 B2 B3, keeps at most 4
    [2] 1F1B: F0 B0 F1 B1 F2 B2 F3 B3, keeps at most 1
    [2] the gradients equal those of the unsplit network

F2 is the forward pass of micro-batch 2, B2 its backward pass. A rank waits while the line fills and while it drains:
this is the bubble. With p ranks and m micro-batches it takes the share (p - 1) / (m + p - 1) of the time if all ranks
are equally fast and messages cost nothing. The measured share is larger on a machine with fewer cores than ranks.

Both schedules have the same bubble. GPipe does all forward passes first, so it keeps what all of them have computed.
1F1B begins with the backward passes as soon as it can, and keeps the outputs of at most p micro-batches.
"""

import time

import numpy as np

import dlaunch
import layer

MICRO_BATCHES, MICRO_BATCH, WIDTH = 4, 96, 256


def gpipe(rank, ranks, count):
    return [("F", i) for i in range(count)] + [("B", i) for i in range(count)]


def one_forward_one_backward(rank, ranks, count):
    ahead = min(ranks - rank - 1, count)  # forward passes before the first backward pass
    steps = [("F", i) for i in range(ahead)]
    for i in range(count - ahead):
        steps += [("F", ahead + i), ("B", i)]
    return steps + [("B", i) for i in range(count - ahead, count)]


class Stage:
    """This rank's layer, and its neighbours in the pipeline."""

    def __init__(self, comm, own, inputs, targets):
        self.comm, self.own, self.inputs, self.targets = comm, own, inputs, targets
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        self.kept, self.most, self.busy = {}, 0, 0.0

    def forward(self, i):
        x = self.inputs[i] if self.first else self.comm.recv(np.empty_like(self.inputs[i]), self.comm.rank - 1)
        begin = time.perf_counter()
        y = self.own.forward(x)
        self.busy += time.perf_counter() - begin
        if not self.last:
            self.comm.send(y, self.comm.rank + 1)
        self.kept[i] = x, y  # the backward pass needs them
        self.most = max(self.most, len(self.kept))

    def backward(self, i):
        x, y = self.kept.pop(i)
        if self.last:
            dy = (y - self.targets[i]) / (MICRO_BATCHES * MICRO_BATCH)
        else:
            dy = self.comm.recv(np.empty_like(y), self.comm.rank + 1)
        begin = time.perf_counter()
        dx = self.own.backward(x, y, dy)
        self.busy += time.perf_counter() - begin
        if not self.first:
            self.comm.send(dx, self.comm.rank - 1)

    def run(self, steps):
        """Returns the share of the time in which the ranks waited: their mean."""
        self.own.gradient[:] = 0
        self.busy = 0.0
        self.comm.barrier()
        begin = time.perf_counter()
        for kind, i in steps:
            (self.forward if kind == "F" else self.backward)(i)
        self.comm.barrier()
        return 1 - self.comm.all_reduce(np.array([self.busy]), "avg")[0] / (time.perf_counter() - begin)


comm = dlaunch.init()
rank, ranks = comm.rank, comm.size
inputs, targets = layer.samples(MICRO_BATCHES, MICRO_BATCH, WIDTH)
right = layer.unsplit_gradients(layer.network(ranks, WIDTH), inputs, targets, MICRO_BATCHES * MICRO_BATCH)
for name, schedule in (("GPipe", gpipe), ("1F1B", one_forward_one_backward)):
    stage = Stage(comm, layer.network(ranks, WIDTH)[rank], inputs, targets)
    steps = schedule(rank, ranks, MICRO_BATCHES)
    stage.run(steps)  # the first run warms up: connections, caches
    bubble = stage.run(steps)
    print(f"{name}: {' '.join(kind + str(i) for kind, i in steps)}, keeps at most {stage.most}")
    if rank == 0:
        formula = (ranks - 1) / (MICRO_BATCHES + ranks - 1)
        print(f"{name}: bubble {bubble:.2f} measured, {formula:.2f} by (p - 1) / (m + p - 1)")
    np.testing.assert_allclose(stage.own.gradient, right[rank], rtol=1e-9, atol=1e-12)
print("the gradients equal those of the unsplit network")

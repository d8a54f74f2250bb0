"""Two kinds of parallelism at once: two pipelines of two stages, which average their gradients.

    $ dlaunch --nproc 4 ddp_pipeline.py
    [0] pipeline 0, stage 0: the gradients equal those of one process
    [1] pipeline 0, stage 1: the gradients equal those of one process
    [2] pipeline 1, stage 0: the gradients equal those of one process
    [3] pipeline 1, stage 1: the gradients equal those of one process

                  stage 0    stage 1
    pipeline 0    rank 0  →  rank 1      along a row: outputs and their gradients, by send and recv
    pipeline 1    rank 2  →  rank 3      along a column: gradients of the same layer, by all_reduce

One process would have the whole network and all samples.
"""

import numpy as np

import dlaunch
import layer

STAGES, MICRO_BATCHES, MICRO_BATCH, WIDTH = 2, 4, 16, 32

comm = dlaunch.init()
row, stage = divmod(comm.rank, STAGES)
pipeline = comm.split(color=row)
replicas = comm.split(color=stage)  # the ranks that have the same layer
own = layer.network(STAGES, WIDTH)[stage]
inputs, targets = layer.samples(MICRO_BATCHES, MICRO_BATCH, WIDTH)
mine = range(row, MICRO_BATCHES, replicas.size)  # the samples are cut among the pipelines

kept = {}
for i in mine:  # forward, as GPipe does
    x = inputs[i] if stage == 0 else pipeline.recv(np.empty_like(inputs[i]), stage - 1)
    kept[i] = x, own.forward(x)
    if stage + 1 < STAGES:
        pipeline.send(kept[i][1], stage + 1)
for i in mine:  # backward
    x, y = kept.pop(i)
    if stage + 1 < STAGES:
        dy = pipeline.recv(np.empty_like(y), stage + 1)
    else:
        dy = (y - targets[i]) / (MICRO_BATCHES * MICRO_BATCH)
    dx = own.backward(x, y, dy)
    if stage > 0:
        pipeline.send(dx, stage - 1)
replicas.all_reduce(own.gradient, out=own.gradient)

right = layer.unsplit_gradients(layer.network(STAGES, WIDTH), inputs, targets, MICRO_BATCHES * MICRO_BATCH)[stage]
np.testing.assert_allclose(own.gradient, right, rtol=1e-9, atol=1e-12)
print(f"pipeline {row}, stage {stage}: the gradients equal those of one process")

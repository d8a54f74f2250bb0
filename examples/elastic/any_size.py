"""Training with NumPy whose weights do not depend on the number of workers, bit by bit.

    $ dlaunch --nproc 4 any_size.py four.bin
    [0] the weights are right after 60 steps of 4 workers
    $ dlaunch --nproc 3 any_size.py three.bin
    [0] the weights are right after 60 steps of 3 workers
    $ cmp four.bin three.bin && echo "the same weights, bit by bit"
    the same weights, bit by bit

Each batch is cut into 8 virtual shards. A worker computes the gradient of each of its shards, and all_reduce_shards()
adds the gradients of all shards in an order that the number of workers does not change. So workers may also come, go
or die in the middle of the training: `dlaunchctl resize 2` changes their number.
"""

import sys

import numpy as np

import dlaunch
from dlaunch import elastic

SAMPLES, FEATURES, BATCH, EPOCHS, SHARDS, RATE = 480, 8, 24, 3, 8, 0.05
RIGHT = np.arange(1.0, FEATURES + 1)

comm = dlaunch.init(elastic=True)
inputs = np.random.default_rng(1).normal(size=(SAMPLES, FEATURES))
targets = inputs @ RIGHT
weights = np.zeros(FEATURES)
sampler = elastic.ElasticSampler(SAMPLES, BATCH, seed=1, shards=SHARDS)
state = elastic.State(comm, weights=weights, sampler=sampler)


def gradient_of(samples):
    return 2 * inputs[samples].T @ (inputs[samples] @ weights - targets[samples])


@elastic.run
def train(state):
    total = np.empty_like(weights)
    while sampler.epoch < EPOCHS:
        for _ in sampler:
            gradients = [gradient_of(samples) for samples in sampler.shard_samples()]
            comm.all_reduce_shards(gradients, SHARDS, out=total)
            weights[:] -= RATE * total / sampler.batch
            state.commit()


train(state)
if comm.rank == 0:
    weights.tofile(sys.argv[1])
    right = np.allclose(weights, RIGHT, atol=0.1)
    steps = EPOCHS * SAMPLES // BATCH
    print(f"the weights are {'right' if right else 'wrong'} after {steps} steps of {comm.size} workers")

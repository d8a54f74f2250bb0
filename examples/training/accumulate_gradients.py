"""Gradient accumulation: a batch that is too large for memory, taken in small pieces, with one all_reduce.

    $ dlaunch --nproc 2 accumulate_gradients.py
    [0] all_reduce after each micro-batch: 80 calls
    [0] all_reduce after each batch:       20 calls
    [0] the weights are the same: yes

A sum of gradients is the gradient of the sum. So each rank adds up the gradients of its micro-batches in its own
memory, and the ranks exchange only the total. In PyTorch, DistributedDataParallel.no_sync() does the same.
"""

import numpy as np

import dlaunch

BATCHES, MICRO_BATCHES, MICRO_BATCH, FEATURES, RATE = 20, 4, 8, 6, 0.05
comm = dlaunch.init()
random = np.random.default_rng([1, comm.rank])  # each rank has samples of its own
inputs = random.normal(size=(BATCHES, MICRO_BATCHES, MICRO_BATCH, FEATURES))
targets = inputs @ np.arange(1.0, FEATURES + 1)


def gradient_of(weights, x, y):
    """The sum over the samples, so that sums of it are right whatever the sizes of the pieces."""
    return 2 * x.T @ (x @ weights - y)


def train(accumulate):
    weights, calls = np.zeros(FEATURES), 0
    samples = comm.size * MICRO_BATCHES * MICRO_BATCH  # of one batch, on all ranks together
    for batch in range(BATCHES):
        total = np.zeros(FEATURES)
        for x, y in zip(inputs[batch], targets[batch]):
            gradient = gradient_of(weights, x, y)
            if not accumulate:
                comm.all_reduce(gradient, out=gradient)
                calls += 1
            total += gradient
        if accumulate:
            comm.all_reduce(total, out=total)
            calls += 1
        weights -= RATE * total / samples
    return weights, calls


often, calls_often = train(accumulate=False)
seldom, calls_seldom = train(accumulate=True)
if comm.rank == 0:
    print(f"all_reduce after each micro-batch: {calls_often} calls")
    print(f"all_reduce after each batch:       {calls_seldom} calls")
    print("the weights are the same:", "yes" if np.allclose(often, seldom, atol=1e-12) else "no")

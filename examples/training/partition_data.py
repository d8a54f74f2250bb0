"""Cutting a data set into one part per rank, in another random order in each epoch.

    $ dlaunch --nproc 3 partition_data.py
    [0] epoch 0: rank 0 has 4 samples, …
    [0] epoch 0: together each sample once
    [0] epoch 1: rank 0 has 4 samples, …
    [0] epoch 1: together each sample once
    [1] epoch 0: rank 1 has 3 samples, …
    [1] epoch 1: rank 1 has 3 samples, …
    [2] epoch 0: rank 2 has 3 samples, …
    [2] epoch 1: rank 2 has 3 samples, …

All ranks shuffle with the same seed, so they agree on the order without a message. Then each rank takes its own part.
When the ranks have different numbers of samples, add up gradients and divide by the number of samples of all ranks
together. The mean of the ranks' means would count the samples of rank 1 more than those of rank 0.
"""

import numpy as np

import dlaunch

SAMPLES, SEED = 10, 1


def part(samples, rank, size, epoch):
    """The numbers of this rank's samples. Parts differ by at most one sample."""
    order = np.random.default_rng([SEED, epoch]).permutation(samples)
    return np.array_split(order, size)[rank]


comm = dlaunch.init()
for epoch in range(2):
    mine = part(SAMPLES, comm.rank, comm.size, epoch)
    print(f"epoch {epoch}: rank {comm.rank} has {len(mine)} samples, {mine.tolist()}")
    counts = np.bincount(mine, minlength=SAMPLES)
    counts = comm.all_reduce(counts)
    if comm.rank == 0:
        print(f"epoch {epoch}: together", "each sample once" if (counts == 1).all() else f"{counts.tolist()}")

"""Backup workers: in each step the first k of n gradients count, and no rank waits for the others.

    $ dlaunch --nproc 4 backup_workers.py
    [0] waits for 4 of 4:          60 steps in … ms, rank 3 in 60 of them, learned
    [0] waits for 3 of 4, drops:   60 steps in … ms, rank 3 in … of them, learned
    [0] waits for 3 of 4, carries: 60 steps in … ms, rank 3 in … of them, learned

One slow worker (a straggler) slows down every step of a synchronous training. If each step waits for one gradient less
than there are workers, one straggler slows down no step: all_reduce_some() is over once that many have come. A rank that
comes later gets the mean of the others, so that all ranks keep the same weights. Its own gradient is dropped, and no
gradient is stale, unlike in an asynchronous training. The price is the work for the dropped gradients. (Chen et al.,
"Revisiting Distributed Synchronous SGD", 2016.) Or it is carried: it counts, one or more steps too late. (Li et al.,
"Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", 2020.) Here rank 3 needs three
times as long as the others.
"""

import time

import numpy as np

import dlaunch
from workers import FEATURES, RATE, distance, gradient_of, own_data

STEPS, REPEATS = 60, 100  # repeats: a gradient takes some milliseconds
comm = dlaunch.init()
last = comm.size - 1


def train(needed, late):
    """Returns the weights, and in how many steps gradients of the last rank were."""
    inputs, targets = own_data(comm.rank)
    repeats = 3 * REPEATS if comm.rank == last else REPEATS
    weights, mean = np.zeros(FEATURES), np.empty(FEATURES)
    counted, fate = 0, "none"
    for _ in range(STEPS):
        # The other ranks are ahead: take what they have got before computing with old weights.
        catches_up = comm.some_behind() > 0 or fate == "carried"
        gradient = None if catches_up else gradient_of(inputs, targets, weights, repeats)
        _, given, fate = comm.all_reduce_some(gradient, needed, "avg", late=late, out=mean)
        counted += given[last] > 0
        weights -= RATE * mean
    return weights, counted


for name, needed, late in ((f"waits for {comm.size} of {comm.size}:         ", comm.size, "drop"),
                           (f"waits for {last} of {comm.size}, drops:  ", last, "drop"),
                           (f"waits for {last} of {comm.size}, carries:", last, "carry")):
    comm.barrier()
    begin = time.perf_counter()
    weights, counted = train(needed, late)
    took = 1e3 * (time.perf_counter() - begin)
    for other in comm.all_gather(weights):
        assert (other == weights).all()  # bit for bit
    learned = "learned" if distance(weights) < 0.2 else f"not learned: {distance(weights):.2f} away"
    if comm.rank == 0:
        print(f"{name} {STEPS} steps in {took:.0f} ms, rank {last} in {counted} of them, {learned}")

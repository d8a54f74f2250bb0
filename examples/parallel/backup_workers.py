"""Backup workers: in each step the first k of n gradients count, and the server does not wait for the others.

    $ dlaunch --nproc 4 backup_workers.py
    [0] waits for 3 of 3: 60 steps in … ms, rank 3 in 60 of them, 0 late gradients dropped, learned
    [0] waits for 2 of 3: 60 steps in … ms, rank 3 in … of them, … late gradients dropped, learned

One slow worker (a straggler) slows down every step of a synchronous training. If the server waits for one gradient less
than there are workers, one straggler slows down no step. The server drops a gradient that comes after the end of its
step. So no gradient is stale, unlike in an asynchronous training. The price is the work for the dropped gradients.
(Chen et al., "Revisiting Distributed Synchronous SGD", 2016.) Here rank 3 is the slow worker.
"""

import time

import numpy as np

import dlaunch
from workers import END, FEATURES, RATE, distance, message, work

STEPS = 60
comm = dlaunch.init()


def serve(needed):
    """Returns the weights, how many gradients of each rank counted, and how many were dropped."""
    weights, received = np.zeros(FEATURES), np.empty(1 + FEATURES)
    counted, dropped = [0] * comm.size, 0
    idle = set(range(1, comm.size))
    for step in range(STEPS):
        for worker in idle:
            comm.send(message(step, weights), worker)
        idle, total = set(), np.zeros(FEATURES)
        while len(idle) < needed:
            source = comm.recv_any(received)
            if received[0] == step:
                total += received[1:]
                counted[source] += 1
                idle.add(source)
            else:  # it is late: that worker goes on with the weights of now
                dropped += 1
                comm.send(message(step, weights), source)
        weights -= RATE * total / needed
    while len(idle) < comm.size - 1:  # gradients that are still under way
        idle.add(comm.recv_any(received))
        dropped += 1
    for worker in idle:
        comm.send(END, worker)
    return weights, counted, dropped


workers = comm.size - 1
for needed in (workers, workers - 1):
    comm.barrier()
    if comm.rank > 0:
        work(comm, slow=comm.rank == workers)
        continue
    begin = time.perf_counter()
    weights, counted, dropped = serve(needed)
    took = 1e3 * (time.perf_counter() - begin)
    learned = "learned" if distance(weights) < 0.2 else f"not learned: {distance(weights):.2f} away"
    print(f"waits for {needed} of {workers}: {STEPS} steps in {took:.0f} ms, rank {workers} in {counted[-1]} of "
          f"them, {dropped} late gradients dropped, {learned}")

"""A parameter server: rank 0 has the weights, and the other ranks compute gradients. The last worker is slow.

    $ dlaunch --nproc 3 parameter_server.py
    [0] synchronous:  240 gradients, rank 1: 120, rank 2: 120
    [0] synchronous:  staleness 0.0, … ms, learned
    [0] asynchronous: 240 gradients, rank 1: …, rank 2: …
    [0] asynchronous: staleness …, … ms, learned

Synchronous: in each step the server waits for the gradients of all workers. The fast worker waits for the slow one.

Asynchronous: the server applies each gradient as soon as it comes and sends that worker the newest weights. No worker
waits. But a gradient may belong to weights that the server has changed since. Staleness counts these changes: the
gradients of the slow worker are old when they come, and too old ones disturb the training.
"""

import time

import numpy as np

import dlaunch
from workers import END, FEATURES, RATE, distance, message, work

GRADIENTS = 240
comm = dlaunch.init()
workers = range(1, comm.size)


def synchronous():
    weights, counts, received = np.zeros(FEATURES), [0] * comm.size, np.empty(1 + FEATURES)
    for step in range(GRADIENTS // len(workers)):
        for worker in workers:
            comm.send(message(step, weights), worker)
        total = np.zeros(FEATURES)
        for _ in workers:
            counts[comm.recv_any(received)] += 1
            total += received[1:]
        weights -= RATE * total / len(workers)
    for worker in workers:
        comm.send(END, worker)
    return weights, counts, [0]


def asynchronous():
    weights, counts, received = np.zeros(FEATURES), [0] * comm.size, np.empty(1 + FEATURES)
    for worker in workers:
        comm.send(message(0, weights), worker)
    asked, staleness = len(workers), []
    for version in range(GRADIENTS):
        source = comm.recv_any(received)
        counts[source] += 1
        staleness.append(version - received[0])
        weights -= RATE * received[1:] / len(workers)
        comm.send(message(version + 1, weights) if asked < GRADIENTS else END, source)
        asked += 1
    return weights, counts, staleness


for name, serve in (("synchronous: ", synchronous), ("asynchronous:", asynchronous)):
    comm.barrier()
    if comm.rank > 0:
        work(comm, slow=comm.rank == comm.size - 1)
        continue
    begin = time.perf_counter()
    weights, counts, staleness = serve()
    took = 1e3 * (time.perf_counter() - begin)
    print(f"{name} {sum(counts)} gradients,", ", ".join(f"rank {worker}: {counts[worker]}" for worker in workers))
    learned = "learned" if distance(weights) < 0.2 else f"not learned: {distance(weights):.2f} away"
    print(f"{name} staleness {np.mean(staleness):.1f}, {took:.0f} ms, {learned}")

"""An all_reduce of our own from isend and irecv, twice: naive and chunked. Both race against the library's.

    $ dlaunch --nproc 4 ring_all_reduce.py
    [0] microseconds, the best of 5:
    [0]  elements    naive  chunked  library
    [0]        64        …        …        …
    [0]     65536        …        …        …
    [0]   1048576        …        …        …
    [0] all three agree

The ranks form a ring: each sends to the next one and receives from the one before. P is the number of ranks.

naive: each rank sends its whole array around the ring. In P - 1 steps each rank sees all arrays and adds them up. It
sends P - 1 times the array.

chunked: the array is cut into P chunks. In P - 1 steps each chunk goes around once and collects the sum
(reduce-scatter), and in P - 1 more steps the finished chunks go around (all-gather). A rank sends 2 (P - 1) / P times
the array: less than twice its size, however many ranks there are. This is the least that is possible.
"""

import time

import numpy as np

import dlaunch

ROUNDS = 5
comm = dlaunch.init()
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size


def shift(outgoing, incoming):
    """One step of the ring: to the right, and from the left, at the same time."""
    request = comm.isend(outgoing, right)
    comm.irecv(incoming, left).wait()
    request.wait()


def naive(x):
    total, passing, incoming = x.copy(), x.copy(), np.empty_like(x)
    for _ in range(size - 1):
        shift(passing, incoming)
        total += incoming
        passing, incoming = incoming, passing  # the received array goes on
    return total


def chunked(x):
    total = x.copy()
    chunks = np.array_split(total, size)  # views: a change of a chunk changes total
    for step in range(size - 1):  # reduce-scatter
        mine = chunks[(rank - step - 1) % size]
        incoming = np.empty_like(mine)
        shift(chunks[(rank - step) % size], incoming)
        mine += incoming
    for step in range(size - 1):  # all-gather: now chunk rank + 1 is finished here
        shift(chunks[(rank - step + 1) % size], chunks[(rank - step) % size])
    return total


def best_time(all_reduce, x):
    times = []
    for _ in range(ROUNDS):
        comm.barrier()  # so that no rank waits for one that begins later
        begin = time.perf_counter()
        result = all_reduce(x)
        times.append(time.perf_counter() - begin)
    return result, min(times) * 1e6


if rank == 0:
    print(f"microseconds, the best of {ROUNDS}:")
    print(f"{'elements':>9} {'naive':>8} {'chunked':>8} {'library':>8}")
for elements in (64, 1 << 16, 1 << 20):
    x = np.arange(elements, dtype=np.float32) % 1000 + rank  # whole numbers: their sums have no rounding
    results, times = zip(*(best_time(way, x) for way in (naive, chunked, comm.all_reduce)))
    if rank == 0:
        print(f"{elements:9}" + "".join(f" {t:8.0f}" for t in times))
    for result in results:
        np.testing.assert_array_equal(result, size * (np.arange(elements) % 1000) + size * (size - 1) / 2)
if rank == 0:
    print("all three agree")

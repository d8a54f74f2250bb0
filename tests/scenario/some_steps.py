"""A training whose steps end with all_reduce_some(): the last rank is slow. At the end all ranks have the same weights,
bit for bit, and the results had each contribution once, or its rank knows that it was dropped.
usage: some_steps.py drop|carry STEPS"""
import sys
import time

import numpy as np

import dlaunch

late, steps = sys.argv[1], int(sys.argv[2])
comm = dlaunch.init()
rank, size = comm.rank, comm.size
random = np.random.default_rng(rank)
weights, total = np.zeros(50_000 + size, np.float32), np.empty(50_000 + size, np.float32)
in_results, counted, kept, dropped, gave = np.zeros(size), 0, 0, 0, 0
fate = "none"
for step in range(steps):
    catches_up = comm.some_behind() > 0 or fate == "carried"
    gradient = None
    if not catches_up:
        time.sleep(0.012 if rank == size - 1 else 0.004)
        gradient = random.normal(size=weights.size).astype(np.float32)
        gradient[-size:] = np.arange(size) == rank  # marks the contribution
        gave += 1
    _, given, fate = comm.all_reduce_some(gradient, size - 1, late=late, out=total)
    assert total[-size:].tolist() == given, (total[-size:], given)
    in_results += given
    if fate == "in":
        counted, kept = counted + kept + (gradient is not None), 0
    elif gradient is not None:
        kept, dropped = kept + (fate == "carried"), dropped + (fate == "dropped")
    if fate == "dropped" and dropped == 1:
        print("is late", flush=True)
    weights -= 0.01 * total / max(1, sum(given))
assert gave == counted + kept + dropped and counted == in_results[rank], (gave, counted, kept, dropped, in_results)
for other in comm.all_gather(weights.view(np.uint32)):
    assert (other == weights.view(np.uint32)).all()
if rank == size - 1:
    print(f"{comm.transport}: {counted} of {gave} contributions are in, {dropped} dropped")
comm.finalize()

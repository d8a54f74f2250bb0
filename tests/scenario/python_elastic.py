"""A training with NumPy that prints its weights. usage: python_elastic.py [FOLDER [lose]]
lose: rank 1 dies at the fifth commit of the first round. FOLDER: for snapshots."""
import hashlib
import os
import signal
import sys

import numpy as np

import dlaunch
from dlaunch import elastic

comm = dlaunch.init(elastic=True)
data = np.random.default_rng(0).standard_normal((90, 8))
w, seen = np.zeros(8), np.zeros(90, "int64")
sampler = elastic.ElasticSampler(len(data), 12, seed=3)
state = elastic.State(comm, w=w, seen=seen, sampler=sampler, losses=[])
if len(sys.argv) > 1:
    state.snapshots(sys.argv[1], 1)


@elastic.run
def train(state):
    while sampler.epoch < 2:
        for mine in sampler:
            if "lose" in sys.argv and comm.rank == 1 and comm.round == 1 and state.commits == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            # Whole numbers, so that the sum does not depend on who sums what.
            g = comm.all_reduce(np.round(data[mine] * 1024).sum(axis=0)) - np.round(w / 2)
            now = np.zeros_like(seen)
            np.add.at(now, mine, 1)
            state.seen += comm.all_reduce(now)
            w[:] += g
            if comm.rank == 0:
                state.losses = state.losses + [float(g.sum())]
            state.commit()


train(state)
assert (seen == 2).all(), "a sample was left out, or taken twice"
weights = hashlib.sha256(w.tobytes() + repr(state.losses).encode()).hexdigest()
print(f"weights {weights} after {state.commits} commits in round {comm.round}")

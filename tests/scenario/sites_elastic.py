"""Local training over sites in elastic jobs; rank 0 of the site lake dies once, with a merge in the background."""
import hashlib
import os
import signal

import numpy as np

import dlaunch
from dlaunch import elastic

comm = dlaunch.init(elastic=True)
w = np.ones(700, "float32")
outer = dlaunch.Outer(comm, [w], inner_steps=8, codec="int4", fragments=2, delay=3, mixing=0.25)
state = elastic.State(comm, outer=outer)
site = outer.sites.info["site"]


@elastic.run
def train(state):
    while outer.steps < 120:
        random = np.random.default_rng([len(site), comm.rank, outer.steps])
        w[:] -= 0.05 * (w - random.normal(size=w.shape).astype("float32"))
        outer.step()
        if site == "lake" and comm.rank == 0 and comm.round == 1 and outer.steps >= 40 and outer.in_flight:
            print("dies with a merge in the background", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()


train(state)
outer.finish()
if comm.rank == 0:
    print(f"weights {hashlib.sha256(w.tobytes()).hexdigest()} in round {comm.round}", flush=True)

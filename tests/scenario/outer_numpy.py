"""Local training with NumPy and an outer optimizer, elastic; prints the weights. usage: outer_numpy.py [lose]
lose: rank 1 dies after step 16 of the first round, with an average in the background."""
import hashlib
import os
import signal
import sys

import numpy as np

import dlaunch
from dlaunch import elastic

STEPS = 40
comm = dlaunch.init(elastic=True)
w, bias, pace = np.ones((30, 20), "float32"), np.zeros(7, "float32"), np.zeros(2, "float64")
outer = dlaunch.Outer(comm, [w, bias], inner_steps=8, codec="int4", fragments=2, delay=3, mixing=0.25)
state = elastic.State(comm, outer=outer, pace=elastic.Own(pace))


def inner_step():
    """Heavy-ball on data that differ by rank and step."""
    random = np.random.default_rng([comm.rank, outer.steps])
    pace[:] = 0.5 * pace + random.normal(size=2)
    w[:] -= 0.05 * (w - random.normal(size=w.shape).astype("float32") + np.float32(pace[0]))
    bias[:] -= 0.05 * (bias - np.float32(pace[1]))


@elastic.run
def train(state):
    while outer.steps < STEPS:
        inner_step()
        outer.step()
        if "lose" in sys.argv and comm.rank == 1 and comm.round == 1 and outer.steps == 16:
            assert outer.in_flight
            print("dies with an average in the background", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()
    return w.copy()


own = train(state)
assert state.pace is pace
assert not np.array_equal(comm.all_gather(own)[0], comm.all_gather(own)[1])
outer.finish()
everywhere = comm.all_gather(w)
assert all(np.array_equal(one, w) for one in everywhere), "the ranks differ"
print(f"weights {hashlib.sha256(own.tobytes() + w.tobytes() + bias.tobytes()).hexdigest()} in round {comm.round}")

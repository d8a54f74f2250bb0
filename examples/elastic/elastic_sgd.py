"""Training with NumPy that continues when a worker dies, to the same weights bit by bit.

    $ dlaunch --nproc 3 elastic_sgd.py quiet.bin
    [0] round 1 begins at step 0
    [0] the weights are right after 60 steps
    [1] round 1 begins at step 0
    [2] round 1 begins at step 0
    $ dlaunch --nproc 3 --max-restarts 3 elastic_sgd.py lost.bin --lose
    [0] round 1 begins at step 0
    [0] round … begins at step 30
    [0] the weights are right after 60 steps
    [1] round 1 begins at step 0
    [1] rank 1 kills itself
    [1] round … begins at step 30
    [2] round 1 begins at step 0
    [2] round … begins at step 30
    dlaunch: … killed by SIGKILL …
    $ cmp quiet.bin lost.bin && echo "the same weights, bit by bit"
    the same weights, bit by bit

A round is a set of workers. When one of them dies, the round is over: dlaunch starts a new process in its place, and
the others keep their processes. All take the last commit and call train() again. With `--spares 1` a spare process
already waits for a death, and `--chaos kill=2s` kills workers at random. `dlaunchctl resize 5` changes the number of
workers.
"""

import os
import signal
import sys

import numpy as np

import dlaunch
from dlaunch import elastic

SAMPLES, FEATURES, BATCH, EPOCHS, RATE = 480, 8, 24, 3, 0.05
RIGHT = np.arange(1.0, FEATURES + 1)

comm = dlaunch.init(elastic=True)
inputs = np.random.default_rng(1).normal(size=(SAMPLES, FEATURES))
targets = inputs @ RIGHT
weights = np.zeros(FEATURES)
# The sampler gives each rank its part of the next batch. Its position is part of the state, like the weights.
sampler = elastic.ElasticSampler(SAMPLES, BATCH, seed=1)
state = elastic.State(comm, weights=weights, sampler=sampler)


@elastic.run
def train(state):
    step = (sampler.epoch * SAMPLES + sampler.position) // BATCH
    print(f"round {comm.round} begins at step {step}")
    while sampler.epoch < EPOCHS:
        for mine in sampler:
            gradient = 2 * inputs[mine].T @ (inputs[mine] @ weights - targets[mine])
            if "--lose" in sys.argv and comm.round == 1 and comm.rank == 1 and step == 30:
                print("rank 1 kills itself")
                os.kill(os.getpid(), signal.SIGKILL)
            comm.all_reduce(gradient, out=gradient)
            weights[:] -= RATE * gradient / sampler.batch  # in place: the state has this memory
            state.commit()
            step += 1
    return step


steps = train(state)
if comm.rank == 0:
    weights.tofile(sys.argv[1])
    right = np.allclose(weights, RIGHT, atol=0.1)
    print(f"the weights are {'right' if right else 'wrong'} after {steps} steps")

"""Data-parallel training by hand: each rank has a part of the data, and the ranks average their gradients.

    $ dlaunch --nproc 2 average_gradients.py
    [0] step  0  loss …
    [0] step 20  loss …
    [0] step 40  loss …
    [0] the ranks have the same weights: yes
    [0] one process with all the data comes to the same weights: yes

DistributedDataParallel does the same for a model, only faster. The gradient of a mean over all samples is the mean of
the gradients over equal parts. So the ranks together take the step that one process would take.
"""

import numpy as np

import dlaunch

SAMPLES, FEATURES, STEPS, RATE = 1024, 8, 60, 0.1


def data():
    """All ranks have the same seed, so they get the same data."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(SAMPLES, FEATURES))
    return inputs, inputs @ np.arange(1.0, FEATURES + 1) + 0.1 * random.normal(size=SAMPLES)


def loss_and_gradient(weights, inputs, targets):
    error = inputs @ weights - targets
    return np.mean(error ** 2), 2 * inputs.T @ error / len(targets)


def train(inputs, targets, average=lambda gradient: gradient, tell=lambda step, loss: None):
    weights = np.zeros(FEATURES)  # all ranks begin with the same weights
    for step in range(STEPS):
        loss, gradient = loss_and_gradient(weights, inputs, targets)
        weights -= RATE * average(gradient)
        if step % 20 == 0:
            tell(step, loss)
    return weights


def tell(step, loss):
    loss = comm.all_reduce(np.array([loss]), "avg")[0]
    if comm.rank == 0:
        print(f"step {step:2}  loss {loss:.3f}")


comm = dlaunch.init()
inputs, targets = data()
mine = slice(comm.rank, None, comm.size)  # every size-th sample
weights = train(inputs[mine], targets[mine], average=lambda gradient: comm.all_reduce(gradient, "avg"), tell=tell)

everybody = comm.all_gather(weights)
if comm.rank == 0:
    same = all(np.array_equal(other, weights) for other in everybody)
    print("the ranks have the same weights:", "yes" if same else "no")
    close = np.allclose(train(inputs, targets), weights, atol=1e-12)
    print("one process with all the data comes to the same weights:", "yes" if close else "no")

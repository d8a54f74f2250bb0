"""Workers that compute gradients, for parameter_server.py and backup_workers.py.

They learn weights by least squares. A message of a server or to it is an array: the number of the server's weights, and then the weights,
or the gradient that they lead to. END ends a worker.
"""

import numpy as np

FEATURES, SAMPLES, RATE, SERVER = 16, 256, 0.05, 0
RIGHT = np.arange(1.0, FEATURES + 1)
SLOWNESS = 200  # the slow worker repeats its work this many times, like a machine that is as much slower

END = np.full(1 + FEATURES, -1.0)


def message(version, values):
    return np.concatenate(([float(version)], values))


def own_data(rank):
    """This worker's part of the data."""
    inputs = np.random.default_rng([1, rank]).normal(size=(SAMPLES, FEATURES))
    return inputs, inputs @ RIGHT


def gradient_of(inputs, targets, weights, repeats):
    for _ in range(repeats):
        gradient = 2 * inputs.T @ (inputs @ weights - targets) / SAMPLES
    return gradient


def work(comm, slow):
    """Answers the server until it sends the end."""
    inputs, targets = own_data(comm.rank)
    received = np.empty(1 + FEATURES)
    while comm.recv(received, SERVER)[0] >= 0:
        version, weights = received[0], received[1:]
        gradient = gradient_of(inputs, targets, weights, SLOWNESS if slow else 1)
        comm.send(message(version, gradient), SERVER)


def distance(weights):
    """From the right weights: 1 at the beginning, 0 at the end."""
    return np.linalg.norm(weights - RIGHT) / np.linalg.norm(RIGHT)

"""One layer of a small network, for the examples that cut a network into pieces: y = tanh(x W)."""

import numpy as np


class Layer:
    def __init__(self, weights):
        self.weights, self.gradient = weights, np.zeros_like(weights)

    def forward(self, x):
        return np.tanh(x @ self.weights)

    def backward(self, x, y, dy):
        """dy: the gradient of the loss with respect to y. Adds the gradient of the weights to `gradient`, and
        returns the gradient with respect to x."""
        dz = dy * (1 - y * y)  # tanh' = 1 - tanh²
        self.gradient += x.T @ dz
        return dz @ self.weights.T


def network(layers, width):
    """The same weights on every rank, because the seed is the same."""
    random = np.random.default_rng(1)
    return [Layer(random.normal(size=(width, width)) / np.sqrt(width)) for _ in range(layers)]


def samples(batches, batch, width):
    """Inputs and targets of so many batches, the same on every rank."""
    random = np.random.default_rng(2)
    return random.normal(size=(2, batches, batch, width))


def unsplit_gradients(layers, inputs, targets, count):
    """The gradients of the whole network in one process. The loss is half the squared error over all `count` samples,
    divided by their number."""
    for x, target in zip(inputs, targets):
        outputs = [x]
        for layer in layers:
            outputs.append(layer.forward(outputs[-1]))
        d = (outputs[-1] - target) / count
        for i in reversed(range(len(layers))):
            d = layers[i].backward(outputs[i], outputs[i + 1], d)
    return [layer.gradient for layer in layers]

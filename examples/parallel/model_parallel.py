"""Model parallelism: the two matrices of a layer are cut, one in columns and one in rows (as in Megatron-LM).

    $ dlaunch --nproc 2 model_parallel.py
    [0] this rank has 64 of 128 hidden units
    [0] output and gradients equal those of the whole layer
    [1] this rank has 64 of 128 hidden units
    [1] output and gradients equal those of the whole layer

The layer is y = tanh(x A) B. Rank r has some columns of A and the same rows of B:

    x (A0 A1) = (x A0  x A1)         each rank computes its own hidden units, without a message
    (h0 h1) (B0 over B1) = h0 B0 + h1 B1     one all_reduce adds up the outputs

The backward pass needs one all_reduce, too: for the gradient with respect to x.
"""

import numpy as np

import dlaunch

BATCH, INPUTS, HIDDEN, OUTPUTS = 32, 48, 128, 16


def layer(x, a, b, dy, add_up=lambda partial: partial):
    """The output, and the gradients with respect to x, a and b where dy is that with respect to the output."""
    hidden = np.tanh(x @ a)
    y = add_up(hidden @ b)
    db = hidden.T @ dy
    dz = (dy @ b.T) * (1 - hidden ** 2)  # tanh' = 1 - tanh²
    return y, add_up(dz @ a.T), x.T @ dz, db


comm = dlaunch.init()
random = np.random.default_rng(1)  # the same on every rank
x, a, b, dy = (random.normal(size=shape) for shape in
               ((BATCH, INPUTS), (INPUTS, HIDDEN), (HIDDEN, OUTPUTS), (BATCH, OUTPUTS)))

part = np.array_split(np.arange(HIDDEN), comm.size)[comm.rank]  # the hidden units of this rank
mine = layer(x, a[:, part], b[part], dy, add_up=comm.all_reduce)
print(f"this rank has {len(part)} of {HIDDEN} hidden units")

y, dx, da, db = layer(x, a, b, dy)  # in one process
for own, whole in zip(mine, (y, dx, da[:, part], db[part])):
    np.testing.assert_allclose(own, whole, rtol=1e-9, atol=1e-9)
print("output and gradients equal those of the whole layer")

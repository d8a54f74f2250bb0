"""The engine's operations on NumPy arrays beside collectives. torch/_tensors.py is the same for PyTorch's.

Both kinds take slices (x[a:b]) and assignment (x[...] = y); these are the other operations. dtype names are those of
both: float32, bfloat16, bool.
"""

import numpy as np


def name_of(x):
    return x.dtype.name


def _dtype(name):
    if name == "bfloat16":
        import ml_dtypes  # TensorFlow and JAX install it
        return ml_dtypes.bfloat16
    return np.dtype(name)


def empty(shape, name):
    return np.empty(shape, _dtype(name))


def zeros(shape, name):
    return np.zeros(shape, _dtype(name))


def plain(x):
    """The same memory, with elements that libdlring can move."""
    return x


def from_bytes(data):
    return np.frombuffer(data, np.uint8)


def to_bytes(x):
    return x.tobytes()


def scale(x, factor):
    """In place. Scales integers as float64, and rounds towards 0."""
    x[...] = (x.astype(np.float64) * factor).astype(x.dtype) if x.dtype.kind in "iu" else x * x.dtype.type(factor)


def dot(x, y):
    """In double precision."""
    return float(np.vdot(x.astype(np.float64), y.astype(np.float64)))


def add_scaled(a, x, b, y):
    """A new array: a * x + b * y."""
    return (a * x.astype(np.float64) + b * y.astype(np.float64)).astype(x.dtype)

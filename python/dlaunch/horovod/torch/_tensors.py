"""The engine's operations on tensors beside collectives: as _arrays for NumPy's arrays."""

import torch

from ..._arrays import bytes_of


def name_of(x):
    return str(x.dtype).partition(".")[2]


def empty(shape, name):
    return torch.empty(shape, dtype=getattr(torch, name))


def zeros(shape, name):
    return torch.zeros(shape, dtype=getattr(torch, name))


def plain(x):
    """The same memory, with elements that libdlring can move: older releases do not export bool."""
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def from_bytes(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else empty([0], "uint8")


def to_bytes(x):
    return bytes_of(x)


def scale(x, factor):
    """In place. Scales integers as float64, and rounds towards 0."""
    if x.is_floating_point() or x.is_complex():
        x.mul_(factor)
    else:
        x.copy_(x.double().mul_(factor))


def dot(x, y):
    """In double precision."""
    return torch.dot(x.reshape(-1).double(), y.reshape(-1).double()).item()


def add_scaled(a, x, b, y):
    """A new tensor: a * x + b * y."""
    return (a * x.double() + b * y.double()).to(x.dtype)

"""The fields of requests, with the same checks for all frameworks. Types are names: float32, int64."""

from ._world import world
from .basics import Adasum, Average, Sum
from ._execute import OPS

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_REDUCED = (*_FLOATS, "uint8", "int8", "int32", "int64")


def reduction(op, average=None):
    """The op of a call, which may give the old average= instead."""
    if average is not None:
        if op is not None:
            raise ValueError("give op= without average=")
        return Average if average else Sum
    if op is None:
        return Average
    if op not in OPS and op != Adasum:
        raise ValueError(f"op={op!r} is not one of hvd.Average, Sum, Adasum, Min, Max and Product")
    return op


def reduced(op, prescale_factor, postscale_factor, types, average=None):
    """The fields of a reduction of tensors of these types."""
    op = reduction(op, average)
    for name in types:
        if name not in (_FLOATS if op == Adasum else _REDUCED):
            raise ValueError(f"op={op} does not work with tensors of {name}")
    return {"op": op, "pre": float(prescale_factor), "post": float(postscale_factor)}


def scattered(op, prescale_factor, postscale_factor, types):
    """The same of reducescatter."""
    if op == Adasum:
        raise ValueError("reducescatter has no op=Adasum")
    return reduced(op, prescale_factor, postscale_factor, types)


def root(root_rank, process_set):
    world.number_of(process_set)
    if root_rank not in process_set.ranks:
        raise ValueError(f"root_rank={root_rank} is not in {process_set}")
    return {"root": int(root_rank)}


def with_rows(kind, shapes):
    """Raises if a tensor has no first dimension."""
    if any(len(shape) == 0 for shape in shapes):
        raise ValueError(f"{kind} works along the first dimension, and this tensor has none")


def splits(rows, given, process_set):
    """How many rows go to each rank of the process set. given: a list, or None for equal parts."""
    world.number_of(process_set)
    size = process_set.size()
    if given is None:
        if rows % size:
            raise ValueError(f"alltoall: {rows} rows do not divide by {size} ranks: give splits=")
        return [rows // size] * size
    given = [int(count) for count in given]
    if len(given) != size or sum(given) != rows or min(given) < 0:
        raise ValueError(f"alltoall: splits={given} does not divide {rows} rows among {size} ranks")
    return given

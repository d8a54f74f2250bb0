"""Collectives on lists of NumPy arrays, which wait for the result: for frameworks that pass tensors as arrays."""

import numpy as np

from . import _arrays, _requests
from ._world import world


def _submit(kind, arrays, name, process_set, request, outputs=None):
    inputs = [np.asarray(x, order="C") for x in arrays]
    request = {"tensors": [[x.dtype.name, list(x.shape)] for x in inputs], **request}
    places = [np.empty_like(x) for x in inputs] if outputs else None
    return world.submit(kind, name, process_set, request=request, arrays=_arrays, inputs=inputs, outputs=places,
                        finish=lambda results: results).wait()


def _types(arrays):
    return [x.dtype.name for x in arrays]


def allreduce(arrays, name, op, prescale_factor, postscale_factor, process_set):
    request = _requests.reduced(op, prescale_factor, postscale_factor, _types(arrays))
    return _submit("allreduce", arrays, name, process_set, request, outputs=True)


def reducescatter(arrays, name, op, prescale_factor, postscale_factor, process_set):
    _requests.with_rows("reducescatter", [x.shape for x in arrays])
    request = _requests.scattered(op, prescale_factor, postscale_factor, _types(arrays))
    return _submit("reducescatter", arrays, name, process_set, request)


def allgather(arrays, name, process_set):
    _requests.with_rows("allgather", [x.shape for x in arrays])
    return _submit("allgather", arrays, name, process_set, {})


def broadcast(arrays, root_rank, name, process_set):
    return _submit("broadcast", arrays, name, process_set, _requests.root(root_rank, process_set), outputs=True)


def alltoall(x, splits, name, process_set):
    """(array, received splits as int32)."""
    _requests.with_rows("alltoall", [x.shape])
    counts = _requests.splits(x.shape[0], splits, process_set)
    out, received = _submit("alltoall", [x], name, process_set, {"splits": counts})
    return out, np.array(received, np.int32)

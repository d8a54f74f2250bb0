"""Collectives for the ranks of one job, on NumPy arrays, tensors and whatever else has memory.

    import numpy as np
    import dlaunch

    comm = dlaunch.init()                       # ranks and peers from the launcher
    x = np.array([float(comm.rank)])
    comm.all_reduce(x, out=x)                   # 0 + 1 + … on every rank
    total = comm.all_reduce(x, "max")           # a new array
    first = dlaunch.Op(lambda a, b: a)          # an operation of its own, for all reductions
    total = comm.all_reduce(x, first)
    request = comm.iall_reduce(x)               # in the background
    total = request.wait()

    dlaunch --nproc 4 program.py

All ranks make the same calls in the same order. A call takes NumPy arrays, tensors of PyTorch, arrays of JAX and CuPy,
and everything else with the buffer protocol, DLPack, __array_interface__ or __cuda_array_interface__. It fills `out`
and returns it, or returns a new array. Arrays must be C-contiguous; `out` and arrays that a call changes must be
writable. A call keeps its arrays while it runs. Errors are exceptions: TypeError and ValueError for arguments that a
call rejects, and `Error` with its kinds, such as `PeerLost` with the lost rank.

Only one thread at a time may use a communicator; a second thread gets an Error. Any thread may call abort(), wait for
requests and use the keys. A child of fork() cannot use its parent's communicators.

dlaunch/_core.pyi describes Communicator, Request and Op; dlaunch.elastic describes elastic programs, and Outer describes
local training for slow networks, also over several Sites.
"""

from ._core import Communicator, Memory, Op, Persistent, Request, heartbeat, init, premul_sum, progress, wait_any
from ._core import version as __version__
from ._errors import (Aborted, AuthError, Corrupt, Error, InvalidError, Mismatch, OperationTimeout, PeerLost, ProtocolError,
                      SystemRefused, Unsupported)
from ._outer import Outer, Sites
from ._spent import reading_input

__all__ = ["Aborted", "AuthError", "Communicator", "Corrupt", "Error", "InvalidError", "Memory", "Mismatch",
           "Op", "OperationTimeout", "Outer", "PeerLost", "Persistent", "ProtocolError", "Request", "Sites", "SystemRefused",
           "Unsupported",
           "heartbeat", "init", "premul_sum", "progress", "reading_input", "wait_all", "wait_any"]


def wait_all(requests):
    """Waits for all of the requests and returns their results in order. Raises the first error in that order, after all
    are done."""
    results, failed = [], None
    for request in requests:
        try:
            results.append(request.wait())
        except Exception as error:  # also of an Op's function
            failed = failed or error
    if failed is not None:
        raise failed
    return results

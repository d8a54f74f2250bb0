"""What the program does between its operations, for the launcher's ledger of goodput (dlaunchctl goodput)."""

import gc
import time
from contextlib import contextmanager

from ._core import spent

_GC, _INPUT = 0, 1


@contextmanager
def reading_input():
    """Around the code that waits for input: where other ranks wait for this one meanwhile, the ledger says why.

    with dlaunch.reading_input():
        batch = next(batches)
    """
    begun = time.monotonic()
    try:
        yield
    finally:
        spent(_INPUT, time.monotonic() - begun)


def _time_collections():
    begun = 0.0

    def note(phase, _):
        nonlocal begun
        if phase == "start":
            begun = time.monotonic()
        elif begun:
            spent(_GC, time.monotonic() - begun)

    gc.callbacks.append(note)


_time_collections()

"""Each rank's own bytes of a state. Rank 1 of 4 dies, and 3 go on with all bytes."""
import os
import signal

import numpy as np

import dlaunch
from dlaunch import _core

comm = dlaunch.init(elastic=True)
state = _core.new_state(comm, 1, 2)
state.keep_own(np.full(4, comm.rank, "uint8"))
state.sync()
state.commit()
assert state.own == bytes([comm.rank] * 4), state.own
state.set_own(np.full(1 + comm.rank, 10 + comm.rank, "uint8"))  # of another size
state.commit()
for wrong in (b"1", np.ones(4)[::2], None):
    try:
        state.set_own(wrong)
    except (TypeError, ValueError, BufferError) as error:
        print("refused:", type(error).__name__)
    else:
        raise AssertionError(f"{wrong!r} was taken")
comm.barrier()
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        state.commit()
except dlaunch.PeerLost:
    state.recover()
of_rank = [bytes([10 + rank] * (1 + rank)) for rank in range(4)]
assert state.own == b"".join(of_rank[rank] for rank in range(comm.rank, 4, comm.size)), state.own
state.finish()
print(f"{comm.size} ranks have all bytes")

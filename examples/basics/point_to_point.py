"""Messages from one rank to another: blocking, non-blocking, both ways at once, and from anybody.

    $ dlaunch --nproc 2 point_to_point.py
    [0] blocking: rank 0 has 1
    [0] non-blocking: rank 0 has 2
    [0] exchange: rank 0 has 101
    [0] from anybody: rank 1 sent 7
    [1] blocking: rank 1 has 1
    [1] non-blocking: rank 1 has 2
    [1] exchange: rank 1 has 100

dlaunch starts two processes of this program and puts the rank before each line that one of them prints. The two run
at the same time, so the lines of one rank come in order, and those of the other come anywhere between them.
"""

import numpy as np

import dlaunch


def blocking(comm):
    x = np.zeros(1)
    if comm.rank == 0:
        x += 1
        comm.send(x, 1)  # returns when x may be changed again
    else:
        comm.recv(x, 0)  # returns when x holds what rank 0 sent
    print(f"blocking: rank {comm.rank} has {x[0]:g}")


def non_blocking(comm):
    x = np.zeros(1)
    if comm.rank == 0:
        x += 2
        request = comm.isend(x, 1)  # returns at once
    else:
        request = comm.irecv(x, 0)
    # The program may compute here, but it must not touch x: x belongs to the message until wait() returns.
    request.wait()
    print(f"non-blocking: rank {comm.rank} has {x[0]:g}")


def exchange(comm):
    # Two ranks that both begin with a large blocking send may wait for each other. With a receive that is already
    # under way, each can take what the other sends.
    peer = 1 - comm.rank
    mine, other = np.array([100.0 + comm.rank]), np.zeros(1)
    request = comm.irecv(other, peer)
    comm.send(mine, peer)
    request.wait()
    print(f"exchange: rank {comm.rank} has {other[0]:g}")


def from_anybody(comm):
    # A tag keeps kinds of messages apart: recv_any takes the next message that has this tag.
    if comm.rank == 0:
        x = np.zeros(1)
        source = comm.recv_any(x, tag=5)
        print(f"from anybody: rank {source} sent {x[0]:g}")
    else:
        comm.send(np.array([7.0]), 0, tag=5)


comm = dlaunch.init()
blocking(comm)
non_blocking(comm)
exchange(comm)
from_anybody(comm)

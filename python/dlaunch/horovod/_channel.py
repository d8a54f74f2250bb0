"""Messages between rank 0 and the others: dicts of plain values, as JSON.

They travel as messages of libdlring on a communicator of their own, which proves the job's secret and ends at the loss
of a rank. Any thread may send; one thread receives.
"""

import collections
import json
import struct
import threading

from .._errors import Error

_FRAME = 1024                  # the least bytes of a message
_ROOM = _FRAME - 8
_HEAD, _REST = 1, 2            # tags


class Channel:
    """comm: of all ranks, with no time limit; the channel finalizes it."""

    def __init__(self, comm):
        self._comm = comm
        self._lock = threading.Lock()  # for each call that begins an operation; waiting needs no lock
        self._sending = collections.deque()
        self._closing = False          # later sends fail

    def send(self, peers, message, last=False):
        """last: a later send raises an Error."""
        data = json.dumps(message, separators=(",", ":")).encode()
        head = struct.pack("<q", len(data)) + data[:_ROOM].ljust(_ROOM)
        with self._lock:
            if self._closing:
                raise Error("the channel to the other ranks is closed")
            self._closing = last
            for peer in peers:
                self._sending.append(self._comm.isend(head, peer, _HEAD))
                if len(data) > _ROOM:
                    self._sending.append(self._comm.isend(data[_ROOM:], peer, _REST))
            while self._sending and self._sending[0].test():
                self._sending.popleft().wait()

    def receive(self, peer=None):
        """Returns (peer, message) for the next message from this peer, or from any."""
        head = bytearray(_FRAME)
        with self._lock:
            request = self._comm.irecv_any(head, _HEAD) if peer is None else self._comm.irecv(head, peer, _HEAD)
        source = request.wait()
        source = source if peer is None else peer
        size, = struct.unpack_from("<q", head)
        data = bytes(head[8:8 + size])
        if size > _ROOM:
            rest = bytearray(size - _ROOM)
            with self._lock:
                request = self._comm.irecv(rest, source, _REST)
            request.wait()
            data += bytes(rest)
        return source, json.loads(data)

    def close(self):
        """Collective, after all threads have stopped receiving: no sent message is lost."""
        self._send_no_more()
        while self._sending:
            self._sending.popleft().wait()
        self._comm.barrier()
        self._comm.finalize()

    def leave(self):
        """Closes a broken channel, after all threads have stopped receiving."""
        self._send_no_more()
        self._sending.clear()
        self._comm.finalize()

    def _send_no_more(self):
        """After this no other thread sends."""
        with self._lock:
            self._closing = True

    def abort(self):
        """Any thread: pending sends and receives get an error."""
        self._comm.abort()

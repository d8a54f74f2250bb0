"""A timeline in the format of Chrome's trace viewer (chrome://tracing, ui.perfetto.dev), which rank 0 writes.

Each tensor is a row. NEGOTIATE_ALLREDUCE lasts from the first rank that submits it until all have; within it a mark
with a rank's number shows when that rank did. ALLREDUCE and so on is the collective itself on rank 0.
"""

import functools
import json
import sys
import threading
import time


def _while_it_can_be_written(method):
    """A full disk costs the timeline, and not the training: it ends there, with one warning."""
    @functools.wraps(method)
    def call(self, *args):
        with self._lock:
            if self._file is None:
                return
            try:
                method(self, *args)
            except (OSError, ValueError) as error:
                self._give_up(error)
    return call


class Timeline:
    """Any thread may call the methods."""

    def __init__(self, path, mark_cycles=False):
        self._lock, self._path = threading.Lock(), path
        self._file = self._open()
        self._rows, self._negotiating, self._first = {}, {}, True
        self._start, self._mark_cycles = time.monotonic(), mark_cycles

    def _open(self):
        """None, after a warning, if this cannot be written: the training goes on without a timeline."""
        try:
            file = open(self._path, "w", encoding="utf-8")
        except (OSError, ValueError) as error:
            self._warn(f"cannot write the timeline {self._path}, and training continues without it: {error}")
            return None
        file.write("[\n")  # which is in the buffer: only flush() and close() fail
        return file

    @staticmethod
    def _warn(text):
        print(f"dlaunch.horovod: {text}", file=sys.stderr, flush=True)

    @_while_it_can_be_written
    def requested(self, rank, request):
        if "name" not in request:
            return
        key = request["set"], request["kind"], request["name"]
        row = self._row(request["name"])
        if key not in self._negotiating:
            self._negotiating[key] = row
            self._write({"ph": "B", "name": f"NEGOTIATE_{request['kind'].upper()}", "tid": row})
        self._write({"ph": "X", "name": str(rank), "tid": row, "dur": 0})

    @_while_it_can_be_written
    def begin(self, response):
        kind = response["do"]
        if self._mark_cycles:
            self._write({"ph": "i", "name": "CYCLE_START", "tid": 0, "s": "g"})
        for name in response["names"]:
            row = self._row(name)
            if self._negotiating.pop((response["set"], kind, name), None) is not None:
                self._write({"ph": "E", "tid": row})
            arguments = {"fused": len(response["names"])} if len(response["names"]) > 1 else {}
            self._write({"ph": "B", "name": kind.upper(), "tid": row, "args": arguments})

    @_while_it_can_be_written
    def end(self, response):
        for name in response["names"]:
            self._write({"ph": "E", "tid": self._row(name)})
        self._file.flush()

    @_while_it_can_be_written
    def close(self):
        self._file.write("\n]\n")
        self._file.close()
        self._file = None

    def _give_up(self, error):
        self._warn(f"the timeline {self._path} ends here: {error}")
        file, self._file = self._file, None
        try:
            file.close()
        except OSError:
            pass  # as before: what its buffer holds has no place

    def _row(self, name):
        if name not in self._rows:
            self._rows[name] = len(self._rows) + 1
            self._write({"ph": "M", "name": "thread_name", "tid": self._rows[name], "args": {"name": name}})
        return self._rows[name]

    def _write(self, event):
        event.update(pid=0, ts=round((time.monotonic() - self._start) * 1e6))
        self._file.write(("" if self._first else ",\n") + json.dumps(event))
        self._first = False

"""Runs the submitted collectives, in the background: one Engine for each round of a process.

submit() passes a request to the coordinator of rank 0: by a message, or by a queue on rank 0 itself. One thread takes
the coordinator's responses and makes the calls of libdlring. On rank 0 the same thread runs the coordinator, and
another one receives requests. During a collective more requests come in, so those that follow run together.
"""

import queue
import sys
import threading
import time

from .._errors import Aborted, Error, PeerLost
from ._channel import Channel
from ._coordinator import Coordinator
from ._errors import HorovodInternalError
from ._execute import OWN_MISTAKES, Executor

_LOST = object()  # in rank 0's queue: no more messages can come
_PATIENCE = 5.0   # seconds, until the channel has noticed the loss of a rank, too


class Engine:
    """comm: of all ranks; only the engine may use it. timeline: of _timeline, or None. lost(rank): called before this
    rank gets an error because that rank's program has ended."""

    def __init__(self, comm, arrays, settings, timeline, lost):
        self.rank, self.size = comm.rank, comm.size
        self._settings, self._timeline, self._lost = settings, timeline, lost
        self._executor = Executor(comm, arrays)
        self._channel = Channel(comm.group(range(self.size), op_timeout=0)) if self.size > 1 else None
        self._lock = threading.Lock()
        self._entries = {}        # pending entries, by key
        self._joining = None      # the entry of join()
        self._end = None          # (text, cause) once it has ended
        self._gone = None         # the rank whose program has ended, which ends all engines
        self._queue = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._lead if self.rank == 0 else self._follow, daemon=True,
                                          name="dlaunch-horovod")]
        if self.rank == 0 and self.size > 1:
            self._threads.append(threading.Thread(target=self._receive, daemon=True, name="dlaunch-horovod-receive"))
        self._receivers = self._threads[1:]
        for thread in self._threads:
            thread.start()

    # -- For the program's threads.

    def submit(self, entry):
        """Any thread. Returns at once."""
        self._raise_if_over()
        with self._lock:
            if entry.request["kind"] == "join":
                if self._joining is not None:
                    raise ValueError("join() is already running, in another thread of this rank")
                self._joining = entry
            elif entry.key in self._entries:
                raise ValueError(f"{entry.key[1]} of '{entry.key[2]}' is already running: wait for it, or take "
                                 f"another name")
            else:
                self._entries[entry.key] = entry
        self._tell(entry.request)
        if self._end is not None:  # it has ended meanwhile
            self._deliver()
        return entry

    def _raise_if_over(self):
        if self._end is not None:
            self._blame()
            text, cause = self._end
            raise HorovodInternalError(text) from cause

    def shut_down(self, at_exit=False):
        """Ends all ranks' engines. at_exit: because this program ends."""
        with self._lock:
            over = self._end is not None
        if not over:
            self._tell({"kind": "shutdown", "at_exit": at_exit})
        self.wait_for_end()

    def abort(self):
        """Ends this rank without order, so that the others lose it; unless all engines already end."""
        with self._lock:
            over = self._end is not None
        if not over:
            self._queue.put((_LOST, Aborted("the program has ended")))
            _attempt(self._executor.abort)
            if self._channel is not None:
                _attempt(self._channel.abort)
        self.wait_for_end()

    def wait_for_end(self):
        for thread in self._threads:
            thread.join()

    @property
    def end(self):
        """None, or (text, cause) once it has ended."""
        return self._end

    def _tell(self, request):
        if self.rank == 0:
            self._queue.put((0, request))
            return
        try:
            self._channel.send([0], request)
        except Error as error:
            self._fail(str(error), error)

    # -- The threads.

    def _lead(self):
        coordinator = Coordinator(self.size, self._settings)
        try:
            while self._end is None:
                for rank, request in self._requests(coordinator.deadline()):
                    coordinator.request(time.monotonic(), rank, request)
                    self._note_request(rank, request)
                responses = coordinator.take(time.monotonic())
                for warning in coordinator.warnings:
                    print(f"dlaunch.horovod: {warning}", file=sys.stderr, flush=True)
                coordinator.warnings.clear()
                if responses:
                    if self._channel is not None:
                        self._channel.send(range(1, self.size), responses)
                    self._perform(responses)
            for thread in self._receivers:
                thread.join()
            self._close()
        except Exception as error:
            self._broken(error)

    def _requests(self, deadline):
        """Returns the requests that have come; waits for one until the deadline."""
        try:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            came = [self._queue.get(timeout=wait)]
            while not self._queue.empty():
                came.append(self._queue.get())
        except queue.Empty:
            return []
        for item in came:
            if item[0] is _LOST:
                raise item[1]
        return came

    def _receive(self):
        """Runs on rank 0. Each rank's last message confirms the end."""
        try:
            left = self.size - 1
            while left > 0:
                rank, request = self._channel.receive()
                if request["kind"] == "goodbye":
                    left -= 1
                else:
                    self._queue.put((rank, request))
        except Exception as error:
            self._queue.put((_LOST, error))

    def _follow(self):
        try:
            while self._end is None:
                self._perform(self._channel.receive(0)[1])
            self._channel.send([0], {"kind": "goodbye"}, last=True)
            self._close()
        except Exception as error:
            self._broken(error)

    def _close(self):
        self._executor.finalize_groups()
        if self._channel is not None:
            self._channel.close()
        self._deliver()  # a rank whose program has ended must not wait for this one

    def _broken(self, error):
        """The other ranks get an error, too, whether they wait in a collective or for rank 0's next response."""
        self._fail(str(error), error)
        lost = isinstance(error, PeerLost)  # then libdlring tells them
        if not lost:
            _attempt(self._executor.abort)
        _attempt(self._executor.finalize_groups)
        if self._channel is not None:
            self._leave_channel(lost)
        self._deliver()

    def _leave_channel(self, lost):
        """lost: the channel is about to lose that rank, too, and names it to the others. An abort would name this one,
        so it waits a while; it is needed all the same, for a channel that somebody reads cannot be left."""
        for thread in self._receivers:
            thread.join(_PATIENCE if lost else 0)
        if not lost or any(thread.is_alive() for thread in self._receivers):
            _attempt(self._channel.abort)
        for thread in self._receivers:
            thread.join()
        _attempt(self._channel.leave)

    def _fail(self, text, cause):
        """Ends this engine: all pending entries fail."""
        with self._lock:
            if self._end is None:
                self._end = text, cause
        if self._gone is None:
            self._deliver()

    def _deliver(self):
        with self._lock:
            failed = [*self._entries.values(), *([self._joining] if self._joining else [])]
            self._entries, self._joining = {}, None
        if not failed:
            return
        try:
            self._blame()
        finally:  # no caller waits for ever
            for entry in failed:
                entry.complete(error=self._end)

    def _blame(self):
        if self._gone is not None and self._gone != self.rank:
            self._lost(self._gone)

    # -- Responses.

    def _perform(self, responses):
        for response in responses:
            response["rank"] = self.rank
            if response["do"] == "shutdown":
                self._gone = response.get("gone")
                self._fail(response["text"], None)
                return
            if response["do"] == "joined":
                with self._lock:
                    self._joining, joined = None, self._joining
                joined.complete(response["last"])
            elif self.rank in response["members"]:
                self._carry_out(response)

    def _carry_out(self, response):
        entries = self._take(response)
        if response["do"] == "error":
            self._complete(entries, error=(response["text"], None))
            return
        try:
            self._run(response, entries)
        except Exception as error:
            self._complete(entries, error=(str(error), error))
            raise

    def _run(self, response, entries):
        timeline = self._timeline  # stop_timeline() may take it away meanwhile
        if timeline is not None:
            timeline.begin(response)
        try:
            results = self._executor.run(response, entries)
        except OWN_MISTAKES as error:
            self._complete(entries, error=(f"{response['do']} of {', '.join(response['names'])}: {error}", error))
            return
        if timeline is not None:
            timeline.end(response)
        for entry, result in zip(entries, results):
            if entry is not None:
                entry.complete(result)

    def _take(self, response):
        """Returns this rank's entries with the response's names. They leave the table before they are done: a thread
        that has waited for one may submit its name again."""
        kind = response.get("kind", response["do"])
        with self._lock:
            return [self._entries.pop((response["set"], kind, name), None) for name in response["names"]]

    @staticmethod
    def _complete(entries, error):
        for entry in entries:
            if entry is not None:
                entry.complete(error=error)

    def _note_request(self, rank, request):
        timeline = self._timeline
        if timeline is not None:
            timeline.requested(rank, request)

    def set_timeline(self, timeline):
        self._timeline = timeline


def _attempt(call):
    """What fails here is over already, and the rest has to be done all the same."""
    try:
        call()
    except Exception:
        pass

"""This process's rank, engine and process sets: the common part of all frameworks."""

import atexit
import os
import select
import socket
import struct
import sys
import threading

from .. import _contract
from .. import init as _join_job
from .._errors import PeerLost
from . import _engine
from ._coordinator import Settings
from ._errors import HorovodInternalError
from ._execute import Entry
from ._timeline import Timeline

_RECORD = struct.Struct("<QQ256s64s")  # each rank's facts: version, process, host, namespace of processes
_PATIENCE = 5.0                        # seconds to wait for a program that is ending
_DYNAMIC = "DYNAMIC"                   # as HOROVOD_TIMELINE: start_timeline() names the file
_NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class ProcessSet:
    """Some of the ranks, with collectives of their own: pass it to init(process_sets=[...]) or to add_process_set(), on
    all ranks, and then to collectives as process_set=.

    process_set_id: its number, None before that. ranks: sorted."""

    def __init__(self, ranks):
        ranks = sorted(ranks)
        if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in ranks):
            raise ValueError("a ProcessSet is made of a list of ranks")
        self.process_set_id, self.ranks = None, ranks

    def size(self):
        """The number of its ranks; None before it was added."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """This rank's place in the set; -1: it is not in it."""
        if self.process_set_id is None:
            return None
        return self.ranks.index(world.rank()) if self.included() else -1

    def included(self):
        """Whether this rank is in it."""
        return None if self.process_set_id is None else world.rank() in self.ranks

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _World:
    """This process's only one.

    arrays: the operations of its framework. sets: by number. elastic: it goes on when others are lost. version: of the
    state that an elastic program holds; 0: none. round: how many rounds this process was in."""

    def __init__(self):
        self._comm = self._engine = self._timeline = None
        self._data = None  # the communicator of collectives: _comm, or one with its ranks in another order
        self._hosts = []
        self.version = self.round = 0
        self._numbers, self._lock = {}, threading.Lock()  # for calls without a name
        self.sets = {}
        self.elastic = False

    # -- Beginning and end.

    def init(self, arrays, comm=None, process_sets=None):
        if self._engine is not None:
            return
        if self._comm is None:
            self.elastic, self.version = may_be_elastic(), 0
            self._comm = _join_job(elastic=self.elastic)
            atexit.register(self._at_exit, os.getpid())
        if comm is not None and sorted(comm) != list(range(self._comm.size)):
            self._leave()
            raise ValueError(f"init(comm={comm!r}): init() takes all ranks of the job; for some of them use process "
                             "sets")
        self.arrays = arrays
        self._begin_somehow()
        for process_set in [] if process_sets is None or process_sets == "dynamic" else process_sets:
            self.add_set(process_set)

    def _begin_somehow(self):
        """Begins in this round, or in the next one if a rank of this round is lost before it has begun."""
        while True:
            try:
                return self._begin()
            except PeerLost:
                if not self.elastic:
                    raise
            self._comm.rejoin(self.version)

    def _begin(self):
        comm = self._comm
        host = f"{socket.gethostname()} {_first_line('/proc/sys/kernel/random/boot_id')}"
        mine = _RECORD.pack(self.version, os.getpid(), host.encode(), _process_namespace())
        everybody = bytearray(len(mine) * comm.size)
        comm.all_gather(mine, out=everybody)
        records = list(_RECORD.iter_unpack(everybody))
        # The rank 0 of Horovod holds the newest state.
        versions = [record[0] for record in records]
        first = versions.index(max(versions))
        order = [first, *(rank for rank in range(comm.size) if rank != first)]
        self._data = comm if first == 0 else comm.group(order, tag=1)
        self._hosts = [records[rank][2] for rank in order]
        self._processes = [records[rank][1:] for rank in order]
        self._order = order
        self._numbers, self.round = {}, self.round + 1
        self.sets = {0: global_process_set}
        global_process_set.process_set_id, global_process_set.ranks = 0, list(range(comm.size))
        path = os.environ.get("HOROVOD_TIMELINE")
        if path and path != _DYNAMIC and self._timeline is None:
            self.start_timeline(path, os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES") == "1")
        self._engine = _engine.Engine(self._data, self.arrays, _settings(), self._timeline, self._note_loss)

    def _note_loss(self, rank):
        """For the launcher's report, if libdlring leaves such notes: this rank fails because of that one. Waits for the
        end of that rank's process, if it can see that, so that the launcher sees that end first, too."""
        process, host, namespace = self._processes[rank]
        if (host, namespace) == self._processes[self.rank()][1:]:
            _wait_for_end(process)
        folder = os.environ.get(_contract.ROUND_DIR)
        if folder:
            folder = os.path.join(os.path.dirname(folder), str(self._comm.round))
            note = os.path.join(folder, f"peer_lost.{self._launched(self.rank())}")
            try:
                with open(note, "w", encoding="ascii") as file:
                    file.write(str(self._launched(rank)))
            except OSError:
                pass  # the report has less detail

    def shut_down(self):
        """Does not leave the round of an elastic process: init() may follow."""
        if self._engine is not None:
            self._engine.shut_down()
            if self.elastic:
                self._forget()
                self.stop_timeline()
            else:
                self._leave()

    def _leave(self):
        self._forget()
        self._comm.finalize()
        self._comm = None
        self.stop_timeline()

    def _forget(self):
        if self._data is not None and self._data is not self._comm:
            self._data.finalize()
        self._engine = self._data = None
        for process_set in self.sets.values():
            process_set.process_set_id = None

    def _at_exit(self, process):
        """The program ends. After an exception this rank aborts; otherwise it shuts Horovod down on all ranks."""
        if os.getpid() != process or self._comm is None:
            return
        if self._engine is not None and hasattr(sys, "last_value"):
            self._engine.abort()
            return
        if self._engine is not None:
            self._engine.shut_down(at_exit=True)
        self._leave()

    def next_round(self):
        """Moves the process to the next round of an elastic job. The engine ends: on all ranks, or by a loss."""
        if self._engine is not None:
            self._engine.shut_down()
            self._forget()
        self._comm.rejoin(self.version)
        self._begin_somehow()

    # -- The place of this rank.

    @property
    def initialized(self):
        return self._engine is not None

    @property
    def engine(self):
        if self._engine is None:
            raise ValueError(_NOT_INITIALIZED)
        return self._engine

    @property
    def comm(self):
        """For uses without an engine: round_over, peer_lost."""
        return self._comm

    def rank(self):
        return self.engine.rank

    def size(self):
        return self.engine.size

    def local_ranks(self):
        """The ranks of this host."""
        return [rank for rank in self._by_launch() if self._hosts[rank] == self._hosts[self.rank()]]

    def cross_ranks(self):
        """The ranks with this one's local rank, by host."""
        place, seen, same = self.local_ranks().index(self.rank()), {}, []
        for rank in self._by_launch():
            host = self._hosts[rank]
            if seen.setdefault(host, 0) == place:
                same.append(rank)
            seen[host] += 1
        return same

    def _launched(self, rank):
        """The launcher's number of a rank."""
        return self._order[rank]

    def _by_launch(self):
        """The ranks in the launcher's order: local ranks are the launcher's."""
        return sorted(range(len(self._order)), key=self._launched)

    def is_homogeneous(self):
        self.engine
        return len({self._hosts.count(host) for host in self._hosts}) == 1

    # -- Submitting.

    def name(self, kind, name):
        """Horovod's name for a call without a name: a number that counts the calls of this kind."""
        if name:
            return name
        with self._lock:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            return f"noname.{self._numbers[kind]}"

    def submit(self, kind, name, process_set, **rest):
        """rest: of Entry, and fields of the request. Returns the entry."""
        engine = self.engine
        number = self.number_of(process_set)
        request = {"kind": kind, "set": number, "name": self.name((kind, number), name), **rest.pop("request", {})}
        return engine.submit(Entry(request, **rest))

    def number_of(self, process_set):
        number = process_set.process_set_id
        if number is None:
            raise ValueError(f"{process_set} is not registered: give it to init(process_sets=[...]) or to "
                             "add_process_set()")
        if self.rank() not in process_set.ranks:
            raise ValueError(f"rank {self.rank()} is not in {process_set}, so it takes no part in its collectives")
        return number

    def join(self):
        return self.engine.submit(Entry({"kind": "join", "set": 0, "name": ""}, finish=lambda last: last)).wait()

    # -- Process sets.

    def add_set(self, process_set):
        if not isinstance(process_set, ProcessSet):
            process_set = ProcessSet(process_set)
        if not process_set.ranks or not set(process_set.ranks) <= set(range(self.size())):
            raise ValueError(f"{process_set}: its ranks must be from 0 to {self.size() - 1}")
        number = self._ask("add_set", {"ranks": process_set.ranks})
        process_set.process_set_id = number
        self.sets.setdefault(number, process_set)
        return process_set

    def remove_set(self, process_set):
        number = process_set.process_set_id
        if number == 0:
            return False
        if number is None:
            raise ValueError(f"{process_set} is not registered")
        removed = self._ask("remove_set", {"id": number})
        self.sets.pop(number, None)
        process_set.process_set_id = process_set.ranks = None
        return removed

    def _ask(self, kind, request):
        return self.submit(kind, None, global_process_set, request=request, finish=lambda result: result).wait()

    # -- The timeline.

    def start_timeline(self, path, mark_cycles=False):
        self.stop_timeline()
        if self._data is None or self._data.rank == 0:
            self._timeline = Timeline(path, mark_cycles)
            if self._engine is not None:
                self._engine.set_timeline(self._timeline)

    def stop_timeline(self):
        if self._timeline is not None:
            if self._engine is not None:
                self._engine.set_timeline(None)
            self._timeline.close()
            self._timeline = None


def may_be_elastic():
    """Whether the launcher may form another round: then the survivors of a loss keep their process (elastic.run())."""
    return _contract.AGENT in os.environ


def _first_line(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _process_namespace():
    try:
        return os.readlink("/proc/self/ns/pid").encode()
    except OSError:
        return os.urandom(8)  # unique


def _wait_for_end(process):
    try:
        descriptor = os.pidfd_open(process)
    except (AttributeError, OSError):
        return  # it has ended, or this system does not show it
    try:
        end = select.poll()  # select() refuses descriptors from 1024 on
        end.register(descriptor, select.POLLIN)
        end.poll(1000 * _PATIENCE)
    finally:
        os.close(descriptor)


def _number(name, otherwise):
    text = os.environ.get(name, "")
    try:
        return float(text) if text else otherwise
    except ValueError:
        raise ValueError(f"{name}={text} is not a number") from None


def _settings():
    watches = os.environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") in ("", "0")
    return Settings(fusion_bytes=int(_number("HOROVOD_FUSION_THRESHOLD", 128 << 20)),
                    warn_after=_number("HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0) if watches else 0.0,
                    end_after=_number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0) if watches else 0.0)


global_process_set = ProcessSet([])
world = _World()

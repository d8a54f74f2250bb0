"""Trainings that go on when workers die, come and go, as Horovod writes them.

    hvd.init()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            ...
            state.commit()

    train(state)

    dlaunch --nproc 4 --spares 1 --max-restarts 100 train.py

run() calls train() until it returns on all ranks. When a worker is lost, each survivor returns to its last commit. The
ranks form the next round, with or without a replacement, take the state of the newest commit from rank 0, and call
train() again. When the job grows or shrinks, commit() and check_host_updates() leave train() by HostsUpdatedInterrupt
on all ranks, and no step is undone.

Rank 0 of a round is always a worker that holds the newest commit, as with Horovod: when dlaunch's rank 0 is lost, and a
new process replaces it, another worker has rank() 0. So rank() and the number that dlaunch shows may differ.

run() recovers only from losses. Other HorovodInternalErrors, such as those of ranks that disagree, pass through, and so
does every error if the launcher replaces no worker: with --max-restarts 0, or without dlaunch. Process sets end with
their round: add them again in a reset callback.
"""

import copy
import functools

from .._errors import PeerLost
from ._errors import HorovodInternalError, HostsUpdatedInterrupt
from ._world import global_process_set, world


class State:
    """Base of states: derive from it with save(), restore() and sync().

    bcast_object: as broadcast_object. get_rank: as rank()."""

    def __init__(self, bcast_object, get_rank):
        self._bcast_object, self._rank = bcast_object, get_rank
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Calls these without arguments in each new round, before the state is synchronized: for example to scale the
        learning rate to the new size()."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self):
        """Collective. After a loss all ranks return to this state."""
        self.save()
        world.version += 1
        self.check_host_updates()

    def check_host_updates(self):
        """Collective. Leaves train() on all ranks if the job is to grow or to shrink."""
        if world.elastic and _somebody_knows(world.comm.round_over):
            raise HostsUpdatedInterrupt()

    def save(self):
        """Keeps the present state."""
        raise NotImplementedError

    def restore(self):
        """Returns to the state that save() has kept."""
        raise NotImplementedError

    def sync(self):
        """Collective. Copies rank 0's state to all ranks."""
        raise NotImplementedError

    def reset(self):
        """A new round has begun."""


class ObjectState(State):
    """Values that can be pickled, as attributes by their names."""

    def __init__(self, bcast_object, get_rank, **kwargs):
        super().__init__(bcast_object, get_rank)
        self._names = list(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        ObjectState.save(self)

    def save(self):
        self._kept = copy.deepcopy({name: getattr(self, name) for name in self._names})

    def restore(self):
        for name, value in copy.deepcopy(self._kept).items():
            setattr(self, name, value)

    def sync(self):
        if self._names:
            self._kept = self._bcast_object({name: getattr(self, name) for name in self._names})
            ObjectState.restore(self)


def _somebody_knows(flag):
    arrays = world.arrays
    x = arrays.from_bytes(bytes([flag]))
    out = arrays.empty([1], "uint8")
    request = {"tensors": [["uint8", [1]]], "op": "Max", "pre": 1.0, "post": 1.0}
    results = world.submit("allreduce", "elastic.round_over", global_process_set, request=request, arrays=arrays,
                           inputs=[x], outputs=[out], finish=lambda results: results).wait()
    return arrays.to_bytes(results[0]) != b"\0"


def _is_a_loss(error):
    return world.elastic and (isinstance(error.__cause__, PeerLost) or world.comm.peer_lost is not None)


def _synchronize(state):
    state.sync()
    world.version = max(1, state._bcast_object(world.version))


def run_fn(func, reset=None):
    """The decorator of run(). reset: called in each new round, before the state's callbacks."""

    @functools.wraps(func)
    def in_rounds(state, *args, **kwargs):
        world.engine  # hvd.init() must come before
        while True:
            try:
                _synchronize(state)
                result = func(state, *args, **kwargs)
                world.submit("barrier", "elastic.end", global_process_set).wait()
                return result
            except HorovodInternalError as error:
                if not _is_a_loss(error):
                    raise
                state.restore()
            except HostsUpdatedInterrupt:
                pass
            world.next_round()
            if reset is not None:
                reset()
            state.on_reset()
    return in_rounds


def run(func):
    """Decorates train(state, ...), whose first argument is the state; see the module."""
    return run_fn(func)


__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run", "run_fn"]

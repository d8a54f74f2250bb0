"""Training with NumPy that goes on when workers die, come and go.

    import numpy as np
    import dlaunch
    from dlaunch import elastic

    comm = dlaunch.init(elastic=True)
    w = np.zeros(784)
    sampler = elastic.ElasticSampler(len(images), global_batch=256, seed=1)
    state = elastic.State(comm, w=w, sampler=sampler, best=0.0)

    @elastic.run
    def train(state):
        while sampler.epoch < 10:
            for mine in sampler:                 # this rank's samples, as numbers
                g = gradient(w, images[mine])
                comm.all_reduce(g, out=g)
                w -= 0.1 * g / sampler.batch     # w stays where it is
                state.commit()

    train(state)

    dlaunch --nproc 8 --spares 1 --max-restarts 100 train.py

When a worker is lost the others leave train() by an exception, keep their processes, get their last commit
back, and train() is called again, with who has come in the lost one's place or without. So train() begins from
what the state holds, and makes anew what belongs to the ranks of a round, such as groups. comm has its rank and
size of the round from the beginning of train() on.

With as many workers as before the result is that of an undisturbed run, bit by bit. Everywhere else but under
dlaunch the same program runs, and a lost worker ends it.

Plain values and state_dict()s are taken from rank 0 at each commit; arrays have to be the same on all ranks
then. Random numbers are no part of the state: seed what shall come out the same by sampler.epoch and
sampler.position. The engine is that of dlaunch.torch.elastic and of <dlaunch/elastic.h>.
"""

import functools
import os
import pickle
import struct

from . import _core
from ._errors import PeerLost

__all__ = ["ElasticSampler", "PeerLost", "RoundOver", "State", "run"]


class RoundOver(BaseException):
    """Out of commit(), on all ranks: the job grows, shrinks or loses a host in good order, and train() is
    called again in the next round. For run(); not an error, so that no handler of errors takes it for one."""


class ElasticSampler:
    """Goes through `samples` samples epoch by epoch, in an order that depends on seed and epoch alone, one
    global batch of all ranks a step. Its place is part of the state that it is given to: whoever dies, each
    sample of an epoch is in one committed step.

    Iterating goes through what is left of the epoch; each time it gives this rank's numbers of samples, as an
    array of uint32, which has none where a last batch has fewer samples than there are ranks.

    epoch: the pass over the data that the next batch belongs to, from 0. position: how many of its samples
    have been taken. batch: how many samples the last batch had, those of all ranks together."""

    def __init__(self, samples, global_batch, *, seed=0):
        for name, value, least in (("samples", samples, 1), ("global_batch", global_batch, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"ElasticSampler: {name} is a whole number, and not {value!r}")
            if value < least:
                raise ValueError(f"ElasticSampler: {name} is at least {least}, and not {value}")
        self.samples, self.global_batch, self.seed = samples, global_batch, seed
        self.batch = 0
        self._kept = self._number = None

    def _bind(self, kept, name):
        if self._kept is not None:
            raise ValueError("this sampler is part of another state")
        self._number = kept.sampler(name, self.samples, self.global_batch, self.seed)
        self._kept = kept

    def _place(self):
        return (0, 0) if self._kept is None else self._kept.sampler_place(self._number)

    @property
    def epoch(self):
        return self._place()[0]

    @property
    def position(self):
        return self._place()[1]

    def __iter__(self):
        import numpy
        if self._kept is None:
            raise RuntimeError("this sampler is part of no state: give it to State()")
        epoch = self.epoch
        while self.epoch == epoch:
            indices, self.batch = self._kept.sampler_next(self._number)
            yield numpy.frombuffer(indices, dtype=numpy.uint32)


class _WithStateDict:
    """What has state_dict() and load_state_dict()."""

    def __init__(self, thing):
        self.values, self.set_values = thing.state_dict, thing.load_state_dict


def _is_array(part):
    return hasattr(part, "__array_interface__") and hasattr(part, "shape") and hasattr(part, "dtype") \
        and hasattr(part, "__setitem__")


class State:
    """What training consists of: NumPy arrays, samplers, whatever has state_dict() and load_state_dict(), and
    plain values that can be pickled. All are attributes by their names; plain values may be set
    (state.epoch += 1), and arrays are changed in place (state.w -= step).

    communicator: of dlaunch.init(elastic=True). The same parts, in the same order, on all ranks. The memory of
    arrays is part of the state as it is.
    room: bytes that everything but arrays may take when pickled.
    commit_every: every n-th commit() makes a commit, so that n steps may be done again."""

    def __init__(self, communicator, *, room=1 << 16, commit_every=1, **parts):
        kept = _core.new_state(communicator, commit_every)
        self.__dict__.update(_comm=communicator, _kept=kept, _parts=parts, _plain={}, _dicts={}, _callbacks=[],
                             _values=bytearray(room), _running=False)
        for name, part in parts.items():
            if hasattr(type(self), name) or name.startswith("_"):
                raise ValueError(f"'{name}' is something else of a state: take another name")
            if isinstance(part, ElasticSampler):
                part._bind(kept, name)
            elif _is_array(part):
                kept.replicated(name, part)
            elif hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
                self._dicts[name] = _WithStateDict(part)
            else:
                self._plain[name] = part
        self._write_values()
        kept.replicated("_values", self._values)

    def __getattr__(self, name):
        parts = self.__dict__.get("_parts", {})
        if name in parts:
            return self._plain[name] if name in self._plain else parts[name]
        raise AttributeError(f"the state has no '{name}'")

    def __setattr__(self, name, value):
        if name in self._plain:
            self._plain[name] = value
        elif name not in self._parts:
            raise AttributeError(f"'{name}' is not part of the state: give it to State() as {name}=...")
        elif value is not self._parts[name]:  # as it is in state.w -= step
            raise AttributeError(f"'{name}' is no plain value: change it in place, as by {name}[...] = value")

    def register_reset_callbacks(self, callbacks):
        """Called without arguments before train() is called again in a new round."""
        self._callbacks.extend(callbacks)

    def snapshots(self, folder, every, keep=1):
        """Every so many commits are also written to a folder, in the background; a job that is started anew
        begins from the newest. Before run(). They hold pickled values: only load what you trust."""
        self._kept.snapshots(os.fspath(folder), every, keep)

    def commit(self):
        """Collective: this is what all come back to when somebody is lost. Within train(); when the launcher
        wants another round it is left here."""
        self._save()
        if self._kept.round_over:
            raise RoundOver

    def restore(self):
        """Back to the last commit, on this rank."""
        self._kept.restore()
        self._load()

    @property
    def commits(self):
        """How many led to this state."""
        return self._kept.commits

    # -- For run().

    def _begin(self):
        self._kept.sync()
        self._load()

    def _recover(self):
        self._kept.recover()
        self._load()
        for callback in self._callbacks:
            callback()

    def _save(self):
        if not self._running:
            raise RuntimeError("commit() is for train(), once run() has called it")
        if self._comm.rank == 0:
            self._write_values()
        self._share_values()
        self._kept.commit()
        if self._comm.rank != 0:
            self._plain.update(self._saved()[0])

    _HEAD = 4096

    def _share_values(self):
        """Rank 0's become everybody's."""
        values = memoryview(self._values)
        self._comm.broadcast(values[:self._HEAD])
        end = 8 + struct.unpack("<q", values[:8])[0]
        if end > self._HEAD:
            self._comm.broadcast(values[self._HEAD:end])

    def _finish(self):
        self._save()
        self._kept.finish()

    def _write_values(self):
        saved = self._pickled()
        if 8 + len(saved) > len(self._values):
            raise ValueError(f"everything but arrays takes {len(saved)} bytes when pickled, and there is room for "
                             f"{len(self._values) - 8}: give State() more by room=")
        self._values[:8 + len(saved)] = struct.pack("<q", len(saved)) + saved

    def _pickled(self):
        both = self._plain, {name: part.values() for name, part in self._dicts.items()}
        try:
            return pickle.dumps(both, protocol=4)
        except Exception:
            for name, value in {**both[0], **both[1]}.items():
                try:
                    pickle.dumps(value, protocol=4)
                except Exception as error:
                    raise ValueError(f"{name}: it cannot be pickled, and so be no part of a state: "
                                     f"{error}") from error
            raise

    def _saved(self):
        size, = struct.unpack("<q", self._values[:8])
        return pickle.loads(self._values[8:8 + size])

    def _load(self):
        """What is in the registered memory becomes that of the parts."""
        plain, dicts = self._saved()
        self._plain.update(plain)
        for name, part in self._dicts.items():
            if name not in dicts:
                raise ValueError(f"the snapshot is of another state: it has no '{name}'; to begin anew, take "
                                 "another folder")
            part.set_values(dicts[name])


def run(train):
    """Decorates train(state, ...), which is called in each round until it returns in one on all ranks; what it
    returns there is the result. Exceptions that are not because of a lost worker pass through."""

    @functools.wraps(train)
    def in_rounds(state, *args, **kwargs):
        if not isinstance(state, State):
            raise TypeError("train() is given a dlaunch.elastic.State first; a method of something is called by "
                            "run(something.train)(state)")
        recovers = False
        state.__dict__["_running"] = True
        try:
            while True:
                try:
                    if recovers:
                        state._recover()
                    else:
                        state._begin()
                    result = train(state, *args, **kwargs)
                    state._finish()
                    return result
                except RoundOver:
                    pass
                except Exception as error:
                    lost = isinstance(error, PeerLost) or state._comm.peer_lost is not None
                    if not lost or "DLAUNCH_AGENT" not in os.environ:
                        raise
                recovers = True
        finally:
            state.__dict__["_running"] = False

    return in_rounds

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

When a worker is lost the others leave train() by an exception, keep their processes, and return to their last commit.
run() then calls train() again, with or without a replacement. So train() must begin from the state, and must make the
objects of a round, such as groups, in each call. comm has the rank and size of the round when train() begins.

With as many workers as before the result is that of an undisturbed run, bit by bit. With virtual shards the result does
not depend on the number of workers either:

    sampler = elastic.ElasticSampler(len(images), global_batch=256, seed=1, shards=8)
    ...
            for _ in sampler:
                gradients = [gradient(w, images[part]) for part in sampler.shard_samples()]
                g = comm.all_reduce_shards(gradients, sampler.shards, out=g)

Without dlaunch the same program runs, and a lost worker ends it.

Each commit takes plain values and state_dict()s from rank 0; arrays must be equal on all ranks at a commit. Random
numbers are no part of the state: to reproduce them, seed by sampler.epoch and sampler.position. The engine is that of
dlaunch.torch.elastic and of <dlaunch/elastic.h>.
"""

import functools
import os

from . import _core
from ._errors import PeerLost
from ._outer import LocalTraining, Outer
from ._parts import Parts, RoundOver, run_rounds

__all__ = ["ElasticSampler", "Own", "PeerLost", "RoundOver", "State", "run"]


class ElasticSampler:
    """Goes through `samples` samples epoch by epoch, one global batch of all ranks in each step. The order depends only
    on seed and epoch. The position is part of the sampler's state: whichever worker dies, each sample of an epoch is in
    exactly one committed step.

    Iterating goes through the rest of the epoch; each step gives this rank's sample numbers, as an array of uint32. The
    array is empty if a last batch has fewer samples than there are ranks, or if there are more ranks than shards.

    epoch: the pass over the data that the next batch belongs to, from 0. position: the number of samples already taken
    in it. batch: the number of samples in the last batch, over all ranks.

    shards: cuts each batch evenly into so many virtual shards, whatever the number of ranks; each rank's samples are
    those of its shards. shard_samples() then gives the samples of each of them, for Communicator.all_reduce_shards()."""

    def __init__(self, samples, global_batch, *, seed=0, shards=None):
        numbers = [("samples", samples, 1), ("global_batch", global_batch, 1), ("seed", seed, 0)]
        for name, value, least in numbers + ([] if shards is None else [("shards", shards, 1)]):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"ElasticSampler: {name} is a whole number, and not {value!r}")
            if value < least:
                raise ValueError(f"ElasticSampler: {name} is at least {least}, and not {value}")
        self.samples, self.global_batch, self.seed, self.shards = samples, global_batch, seed, shards
        self.batch = 0
        self._kept = self._number = None

    def _bind(self, kept, name, comm):
        if self._kept is not None:
            raise ValueError("this sampler is part of another state")
        self._number = kept.sampler(name, self.samples, self.global_batch, self.seed)
        if self.shards is not None:
            kept.sampler_set_shards(self._number, self.shards)
        self._kept, self._comm = kept, comm

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
            raise RuntimeError("this sampler belongs to no state: give it to State()")
        epoch = self.epoch
        while self.epoch == epoch:
            indices, self.batch = self._kept.sampler_next(self._number)
            yield numpy.frombuffer(indices, dtype=numpy.uint32)

    def shard_samples(self):
        """The sample numbers of the last batch for each virtual shard of this rank, in order: a list of arrays, some of
        which may be empty. Needs `shards`."""
        import numpy
        if self.shards is None or self._kept is None:
            raise RuntimeError("this sampler has no virtual shards: give it `shards`, and give it to State()")
        return [numpy.frombuffer(self._kept.sampler_shard(self._number, shard), dtype=numpy.uint32)
                for shard in self._comm.own_shards(self.shards)]


class Own:
    """An array that differs between ranks, for State(): State(comm, m=Own(m)). state.m is the array. Each commit also
    sends it to the next rank, which keeps it for this one's replacement. With another number of ranks, each rank continues
    with the array of the rank that had the same number, and a rank with a new number begins with a copy of another's."""

    def __init__(self, array):
        self.array = array


class _WithStateDict:
    """An object with state_dict() and load_state_dict()."""

    def __init__(self, thing):
        self.values, self.set_values = thing.state_dict, thing.load_state_dict


def _is_array(part):
    return hasattr(part, "__array_interface__") and hasattr(part, "shape") and hasattr(part, "dtype") \
        and hasattr(part, "__setitem__")


class State(Parts):
    """The parts of a training: NumPy arrays, samplers, objects with state_dict() and load_state_dict(), and plain
    values that can be pickled; and for local training arrays that differ between ranks (Own) and a dlaunch.Outer, which
    brings its tensors. All are attributes by their names. The program may set plain values (state.epoch += 1),
    and must change arrays in place (state.w -= step).

    communicator: of dlaunch.init(elastic=True). All ranks must give the same parts in the same order. The memory of
    arrays is itself part of the state.
    room: bytes for everything but arrays when pickled.
    commit_every: every n-th commit() makes a commit, so that up to n steps may be repeated.

    Each commit() waits for the averages of an Outer that run in the background, also where commit_every leaves the commit
    out. So that they overlap with steps, call commit() only where outer.in_flight is false, or seldom."""

    _HELD, _IN_PLACE = "arrays", "{name}[...] = value"

    def __init__(self, communicator, *, room=1 << 16, commit_every=1, **parts):
        kept = _core.new_state(communicator, commit_every)
        self.__dict__.update(_comm=communicator, _kept=kept, _parts=parts, _plain={}, _valued={}, _callbacks=[],
                             _bytes=memoryview(bytearray(room)), _running=False)
        self.__dict__["_outers"] = [part for part in parts.values() if isinstance(part, Outer)]
        for name, part in parts.items():
            if hasattr(type(self), name) or name.startswith("_"):
                raise ValueError(f"a state uses '{name}' for something else: take another name")
            if isinstance(part, ElasticSampler):
                part._bind(kept, name, communicator)
            elif isinstance(part, Outer):
                self._keep_outer(name, part)
            elif isinstance(part, LocalTraining):
                raise TypeError(f"{name}: this {type(part).__name__} and its parameters differ between ranks, and rank 0's "
                                f"would replace the others': make it with elastic=True, and use "
                                f"dlaunch.torch.elastic.TorchState")
            elif isinstance(part, Own):
                kept.own_array(name, part.array)
                parts[name] = part.array
            elif _is_array(part):
                kept.replicated(name, part)
            elif hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
                self._valued[name] = _WithStateDict(part)
            else:
                self._plain[name] = part
        self._write_values()
        kept.replicated("_values", self._bytes)

    def snapshots(self, folder, every, keep=1):
        """Also writes every `every`-th commit to a folder, in the background; a restarted job begins from the newest.
        Call it before run(). The files hold pickled values: only load what you trust."""
        self._kept.snapshots(os.fspath(folder), every, keep)

    def restore(self):
        """Returns to the last commit, on this rank."""
        for outer in self._outers:
            outer.restored()
        super().restore()

    def _keep_outer(self, name, outer):
        self._kept.replicated(name, outer.shared)
        if len(outer.residual) > 0:
            self._kept.own_array(f"{name}.residual", outer.residual)
        for number, tensor in enumerate(outer.tensors):
            self._kept.own_array(f"{name}.{number}", tensor)

    # -- For run().

    def _in_train(self):
        return self._running

    def _adopt(self):
        for outer in self._outers:
            outer.settle()

    def _load(self):
        for outer in self._outers:
            outer.restored()
        super()._load()

    def _recover(self):
        super()._recover()
        self._call_back()

    def _share(self):
        self._comm.broadcast(self._bytes[:self._HEAD])
        end = self._values_end()
        if end > self._HEAD:
            self._comm.broadcast(self._bytes[self._HEAD:end])


def run(train):
    """Decorates train(state, ...): calls it in each round until it returns on all ranks, and returns its result.
    Exceptions without a lost worker pass through."""

    @functools.wraps(train)
    def in_rounds(state, *args, **kwargs):
        if not isinstance(state, State):
            raise TypeError("train() takes a dlaunch.elastic.State first; for a method, call "
                            "run(something.train)(state)")

        def one_round(recovers):
            if recovers:
                state._recover()
            else:
                state._sync()
            result = train(state, *args, **kwargs)
            state._finish()
            return result

        state.__dict__["_running"] = True
        try:
            return run_rounds(one_round, lambda: state._comm.peer_lost is not None)
        finally:
            state.__dict__["_running"] = False

    return in_rounds

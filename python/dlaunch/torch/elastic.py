"""Training with PyTorch that goes on when workers die, come and go.

    import torch.distributed as dist
    from dlaunch.torch import elastic
    from torch.nn.parallel import DistributedDataParallel

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    loader = elastic.DataLoader(dataset, global_batch=256, seed=1)
    state = elastic.TorchState(model=model, optimizer=optimizer, loader=loader, best=0.0)

    @elastic.run
    def train(state):
        net = DistributedDataParallel(model)
        while loader.epoch < 10:
            for x, y in loader:                # goes on in the middle of an epoch
                optimizer.zero_grad()
                loss(net(x), y).backward()
                optimizer.step()
                state.commit()

    train(state)

    dlaunch --nproc 8 --spares 1 --max-restarts 100 train.py

When a worker is lost the others leave train() by an exception, keep their processes, and return to their last commit.
run() then calls train() again, with or without a replacement. So train() must begin from the state, with modules in
train() or eval() as at the commit, and must make the objects of a process group, such as DistributedDataParallel, in
each call. Gradients are no part of the state: train() begins without any, so commit after optimizer.step().
torch.distributed (back end "dlring", rank and size of the round) works within train() and from its end on. It does not
work before train(), because a later worker would be alone in those calls.

With as many workers as before the weights are those of an undisturbed run, bit by bit, if two such runs agree. (With
gradient_as_bucket_view, and a number of ranks that is no power of two, PyTorch itself rounds the first step of each
DistributedDataParallel differently.)

Without dlaunch (torchrun, python alone) the same program runs, and a lost worker ends it.

A commit takes values that differ between ranks from rank 0: buffers, such as those of BatchNorm, and plain values. So
does the start. Random numbers are each rank's own: a commit keeps the state of Python's random, of torch, of NumPy if
it is imported and of the current GPU if it is in use. The replacement of a lost rank continues with the lost rank's
numbers. A rank that is new in a larger round continues with its own. TorchState(random_state=False) does not touch
them.

Local training, for slow networks: the parameters and the optimizer differ between ranks, and each commit sends a rank's
own to the next rank, which keeps them for its replacement. With another number of ranks each rank continues with the
parameters of the rank that had the same number. Each commit() waits for averages in the background, so that with
delay > 0 a commit after each step leaves no overlap: commit where outer.in_flight is false, or seldom.

    outer = dlaunch.torch.DiLoCo(model, inner_steps=500, codec="int4", elastic=True)
    state = elastic.TorchState(model=model, optimizer=optimizer, outer=outer, ...)

    @elastic.run
    def train(state):                          # without DistributedDataParallel
        while outer.steps < 10000:
            ...
            optimizer.step()
            outer.step()
            state.commit()

Hooks of DistributedDataParallel that keep something from step to step (Compression, PowerSGD, Partial) are parts of a
state, too. Then a training that loses a rank continues bit for bit, also with the hook:

    compression = dlaunch.torch.Compression("int4", model, elastic=True)
    state = elastic.TorchState(model=model, optimizer=optimizer, compression=compression, ...)

    @elastic.run
    def train(state):
        net = DistributedDataParallel(model)
        net.register_comm_hook(compression, dlaunch.torch.compressed)
        ...

Each commit sends what a rank keeps to the next rank. A rank that is new in a larger round begins without it. If two
neighbouring ranks are lost at once, as with a host that has several, what the first of them kept is lost, and the job
ends or begins from its snapshots: TorchState(shard_replicas=N) sends it to the next N ranks, and so the job survives
the loss of N neighbours.

Sharded objects, as of FSDP2, HSDP and tensor parallel (parameters that are DTensors), belong to one round, because a
mesh of ranks does. Make them within train(), and pass them to a state that keeps shards:

    state = elastic.TorchState(loader=loader, shard_replicas=1)

    @elastic.run
    def train(state):
        model = Net()
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters())
        state.sharded(model=model, optimizer=optimizer)  # what the last commit had, cut for these ranks
        while loader.epoch < 10:
            ...

Each commit makes another copy of a rank's part in the host's memory, and sends it to the next shard_replicas ranks,
which keep it beside their own: so the job survives the loss of that many neighbouring ranks at once. The ranks need
memory for three parts each (the registered one and two commits), and for two more for each replica. When the number of
ranks changes, each rank holds the parts of all for a moment: they go around one by one. If more neighbours are lost
than there are replicas, as with a host that has several ranks, the job begins from its snapshots or checkpoints.
state.load(folder) reads them, even those written without dlaunch. They have {"model": ..., "optimizer": ..., "loader":
...} by the names of the parts, with modules and optimizers as in
torch.distributed.checkpoint.state_dict.get_state_dict().
"""

import ctypes
import functools
import gc
import os
from collections import defaultdict

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from .._errors import PeerLost
from .._outer import LocalTraining
from .._parts import RoundOver, in_elastic_job, run_rounds
from . import communicator, join_rounds
from ._communicator import borrowed
from ._exchange import GradientExchange
from ._kinds import kind_of
from ._loader import DataLoader
from ._own import Own

__all__ = ["DataLoader", "PeerLost", "RoundOver", "TorchState", "run"]


class TorchState(Own):
    """The parts of a training: modules, optimizers, tensors, objects with state_dict() and load_state_dict(), and plain
    values that can be pickled; and a DiLoCo, LocalSGD, or the state of a hook. All are attributes by their names; the
    program may set plain values (state.epoch += 1).

    Make it when modules and tensors are on their device, with the same parts on all ranks. Their memory is itself part
    of the state, and so is the memory that optimizers make for each parameter.
    room: bytes for everything but tensors when pickled.
    shard_replicas: how many ranks keep a copy of each other rank's shards, for a state with sharded(); None: nothing is
    sharded, and one rank keeps a copy of what a DiLoCo, LocalSGD or hook has for each rank.
    random_state: whether each rank's random numbers are part of the state."""

    _HELD, _IN_PLACE = "tensors", "{name}.copy_() or {name}.load_state_dict()"
    _begun = False  # one of this process's

    def __init__(self, *, room=1 << 18, shard_replicas=None, random_state=True, **parts):
        values = torch.zeros(room, dtype=torch.uint8)
        own = {"_parts": parts, "_plain": {}, "_valued": {}, "_outers": {}, "_callbacks": [], "_folder": None,
               "_kept": None, "_comm": None, "_borrowed": None, "_on_gpu": None, "_values": values,
               "_bytes": memoryview((ctypes.c_char * room).from_address(values.data_ptr())).cast("B")}
        own.update(self._own(shard_replicas, random_state))
        self.__dict__.update(own)
        for name, part in parts.items():
            if hasattr(type(self), name) or name in own:
                raise ValueError(f"a state uses '{name}' for something else: take another name")
            kind = kind_of(part)
            if isinstance(part, LocalTraining) and not getattr(part, "elastic", False):
                raise TypeError(f"{name}: this {type(part).__name__} differs between ranks, and rank 0's would replace "
                                f"the others': give a DiLoCo, LocalSGD or state of a hook with elastic=True")
            if isinstance(part, LocalTraining) and not isinstance(part, GradientExchange):
                self._outers[name] = part
            elif kind is None:
                self._plain[name] = part
            else:
                self._valued[name] = kind(name, part)
        self.__dict__["_local"] = [kind for kind in self._valued.values() if self._is_local(kind.part)]
        self.__dict__["_exchanges"] = [part for part in parts.values() if isinstance(part, GradientExchange)]

    def snapshots(self, folder, every, keep=1):
        """Also writes every `every`-th commit to a folder, in the background; a restarted job begins from the newest.
        The files hold pickled values: only load what you trust."""
        if self._kept is not None:
            raise RuntimeError("snapshots() comes before run()")
        self.__dict__["_folder"] = (os.fspath(folder), every, keep)

    def restore(self):
        """Returns to the last commit, on this rank."""
        self._for_train("restore")
        for outer in self._outers.values():
            outer._outer.restored()
        super().restore()

    # -- For run().

    def _check(self):
        """Checks that need no other rank."""
        if TorchState._begun:
            raise RuntimeError("call run() once in a process: a process that joins later begins with the first call")
        self._adopt()
        self._write_values()

    def _begin(self, comm):
        TorchState._begun = True
        memory = (place.memory for kind in self._valued.values() for place in kind.places)
        common = borrowed(comm)
        self.__dict__.update(_comm=comm, _borrowed=common, _kept=_core.new_state(common, 1, self._shard_replicas()),
                             _on_gpu=next((tensor for tensor in memory if tensor.is_cuda), None))
        for kind in self._valued.values():
            for place in kind.places:
                is_own = kind in self._local or place in kind.own
                self._register(place.name, place.memory, self._kept.own_array if is_own else self._kept.replicated)
        for exchange in self._exchanges:
            exchange._comm = common
        for name, outer in self._outers.items():
            self._begin_outer(name, outer, common)
        self._register("_values", self._values, self._kept.replicated)
        self._begin_own()
        if self._folder is not None:
            self._kept.snapshots(*self._folder)

    @staticmethod
    def _register(name, memory, keep):
        # Its bytes in memory order, for any type and strides.
        keep(name, memory.as_strided((memory.numel(),), (1,)).view(torch.uint8))

    # -- Local training.

    def _is_local(self, part):
        """Whether each rank trains its own: what the outer optimizers average."""
        is_trained = isinstance(part, (torch.nn.Module, torch.optim.Optimizer))
        return is_trained and any(outer.trains(part) for outer in self._outers.values())

    def _begin_outer(self, name, outer, comm):
        outer._begin(comm, copies=False)  # a process that joins later begins when others are in a round
        self._kept.replicated(name, outer._outer.shared)
        if len(outer._outer.residual) > 0:
            self._kept.own_array(f"{name}.residual", outer._outer.residual)

    def _load(self):
        for outer in self._outers.values():
            outer._outer.restored()
        super()._load()

    def _share_start(self):
        """Collective. Without a commit all ranks begin with rank 0's parameters, as with replicated memory."""
        if self.commits == 0:
            for kind in self._local:
                self._comm.share_from_first([place.memory for place in kind.places])

    def _in_train(self):
        return self._kept is not None

    def _adopt(self):
        for kind in self._valued.values():
            kind.adopt()
        for outer in self._outers.values():
            if outer._made is not None:
                outer._made.settle()

    def _share(self):
        """Copies buffers to all ranks, too."""
        by_device = defaultdict(list)
        by_device["cpu"].append(self._values[:self._HEAD])
        for kind in self._valued.values():
            for place in kind.buffers if kind not in self._local else ():
                by_device[place.memory.device.type].append(place.memory)
        for tensors in by_device.values():
            self._comm.share_from_first(tensors)
        end = self._values_end()
        if end > self._HEAD:
            self._comm.share_from_first([self._values[self._HEAD:end]])
        if self._on_gpu is not None:
            self._comm.follow_stream(self._on_gpu)


# -- Rounds.


def _join():
    """This process's communicator, in the launcher's rounds if the launcher forms them."""
    if dist.is_initialized():
        raise RuntimeError("run() begins torch.distributed itself, in each round: leave out init_process_group()")
    if in_elastic_job():
        return join_rounds()
    if "RANK" in os.environ:
        dist.init_process_group("dlring")
    else:
        dist.init_process_group("dlring", store=dist.HashStore(), rank=0, world_size=1)
    return communicator()


class _Gone:
    def __getattr__(self, name):
        raise RuntimeError("this DistributedDataParallel belongs to an earlier round: make a new one in each round, "
                           "within train()")


def _leave(comm):
    """Ends all operations of the round and drops its objects: hooks of its DistributedDataParallel would run in the
    next round. Another object, such as a Trainer or an exception, may still refer to that."""
    comm.settle()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()
    for thing in gc.get_objects():
        if issubclass(type(thing), DistributedDataParallel):
            thing.reducer = thing.logger = _Gone()


def run(train):
    """Decorates train(state, ...): calls it in each round until it returns on all ranks, and returns its result.
    Exceptions without a lost worker pass through."""

    @functools.wraps(train)
    def in_rounds(state, *args, **kwargs):
        if not isinstance(state, TorchState):
            raise TypeError("train() takes a TorchState first; for a method, call run(something.train)(state)")
        state._check()
        comm = _join()
        state._begin(comm)

        def one_round(recovers):
            if not recovers:
                state._sync()
            if not dist.is_initialized():
                dist.init_process_group("dlring", store=comm.store(), rank=comm.rank, world_size=comm.size)
            state._share_start()
            state._resume()
            if recovers:
                state._call_back()
            result = train(state, *args, **kwargs)
            state._finish()
            return result

        def into_next():
            _leave(comm)
            for exchange in state._exchanges:
                exchange._settle()
            state._recover()

        # A hook's calls are those of the borrowed communicator or of the hook's own, and what it raises leaves
        # backward() as another exception.
        def lost():
            return (comm.lost or state._borrowed.peer_lost is not None
                    or any(exchange._lost for exchange in state._exchanges))

        return run_rounds(one_round, lost, into_next)

    return in_rounds

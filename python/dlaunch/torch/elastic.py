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

When a worker is lost the others leave train() by an exception, keep their processes, get their last
commit back, and train() is called again, with who has come in the lost one's place or without.
So train() begins from what the state holds, modules in train() or eval() as they were then, and
makes anew what belongs to a group of processes, as DistributedDataParallel does. Gradients are not
part of the state: there are none at its beginning, so commit after optimizer.step().
torch.distributed (back end "dlring", rank and size of the round) is there within train(), and from
its end on; not before, because whoever comes later would be alone with what was called there.

With as many workers as before the weights come out as those of an undisturbed run, bit by bit, if two
such runs do. (With gradient_as_bucket_view, and ranks that are no power of two, PyTorch itself rounds
the first step of each DistributedDataParallel in another way.)

Everywhere else but under dlaunch (torchrun, python alone) the same program runs, and a lost worker
ends it.

What differs from rank to rank at a commit is taken from rank 0: buffers, as those of BatchNorm, and
plain values. So is everything at the start. Random numbers are each rank's own: a commit keeps the
state of Python's random, of torch, of NumPy where it has been imported and of the current GPU where it
is in use, and who takes a lost rank's place goes on with the lost one's. A rank that is new in a larger
round goes on with its own. TorchState(random_state=False) leaves them alone.

What is sharded, as by FSDP2, HSDP and tensor parallel (parameters that are DTensors), is made within
train(), since a mesh of ranks is of one round, and given to a state that keeps shards:

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

Each commit copies a rank's part once more in the host's memory, and sends it to the next
shard_replicas ranks, who keep it beside their own: so many ranks next to each other may be lost at
once. The ranks need three parts each (the registered one and two commits), and twice as much more for
every replica. When the number of ranks changes, each rank holds the parts of all for a moment; then
they go around one by one. Where more neighbours are lost than there are replicas, as with a
host that has several ranks, the job begins from its snapshots or checkpoints.

state.save(folder) and state.checkpoints(folder, every) write folders of torch.distributed.checkpoint,
and state.load(folder) reads them, also such as were written without dlaunch. They have
{"model": ..., "optimizer": ..., "loader": ...} by the names of the parts, modules and optimizers as in
torch.distributed.checkpoint.state_dict.get_state_dict().
"""

import copy
import ctypes
import functools
import gc
import os
from collections import OrderedDict, defaultdict

import torch
import torch.distributed as dist
import torch.utils.data
from torch.nn.parallel import DistributedDataParallel

from .. import _core
from .._errors import PeerLost
from .._parts import RoundOver
from . import communicator, join_rounds
from ._own import Own

__all__ = ["DataLoader", "PeerLost", "RoundOver", "TorchState", "run"]


# -- Tensors whose memory is part of the state.


def _is_dense(tensor):
    expected = 1
    for stride, size in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride()) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _described(tensor):
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}" if torch.is_tensor(tensor) else f"{tensor}"


class _Place:
    """A tensor of the state, where its owner keeps it: holder[key], or the data of a parameter."""
    __slots__ = ("name", "parameter", "holder", "key", "memory")

    def __init__(self, name, tensor, holder=None, key=None):
        if tensor.layout != torch.strided or not _is_dense(tensor):
            raise ValueError(f"{name}: its memory is sparse or has holes: make it contiguous()")
        self.name = name
        self.parameter = tensor if holder is None else None
        self.holder, self.key = holder, key
        self.memory = tensor.detach()  # stays where it is

    def adopt(self):
        """What the owner has put in the tensor's place goes into the memory, which takes it again."""
        now = self.parameter if self.holder is None else self.holder.get(self.key)
        if torch.is_tensor(now) and now.data_ptr() == self.memory.data_ptr():
            return
        was, is_now = _described(self.memory), _described(now)
        if is_now != was:
            raise ValueError(f"{self.name} was {was} when the state was made, and is {is_now}")
        self.memory.copy_(now.detach())
        self.put()

    def put(self):
        if self.holder is not None:
            self.holder[self.key] = self.memory
        elif self.parameter.data_ptr() != self.memory.data_ptr():
            self.parameter.data = self.memory


# -- What may be part of a state: each has places, and values() that set_values() takes.


class _Tensor:
    def __init__(self, name, tensor):
        self.part = tensor
        self.buffers = self.places = [_Place(name, tensor)]

    def adopt(self):
        for place in self.places:
            place.adopt()

    def values(self):
        return None

    def set_values(self, values):
        for place in self.places:
            place.put()
            if place.parameter is not None:
                place.parameter.grad = None  # of a backward() that was broken off


class _Module(_Tensor):
    def __init__(self, name, module):
        self.part = self.module = module
        self.buffers, self.places = [], []
        seen = set()
        for key, parameter in module.named_parameters():
            self.places.append(_Place(f"{name}.{key}", parameter))
        for path, part in module.named_modules():
            for key, buffer in part._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    where = f"{name}.{path}.{key}" if path else f"{name}.{key}"
                    self.buffers.append(_Place(where, buffer, part._buffers, key))
        self.places += self.buffers

    def values(self):
        """What is switched on: a peer may be lost in an evaluation, or after parameters were frozen."""
        return ([part.training for part in self.module.modules()],
                [parameter.requires_grad for parameter in self.module.parameters()])

    def set_values(self, values):
        super().set_values(values)
        for part, training in zip(self.module.modules(), values[0]):
            part.training = training
        for parameter, trained in zip(self.module.parameters(), values[1]):
            parameter.requires_grad_(trained)


class _Optimizer:
    """Its state is made by its first step: a step of a copy, on a parameter like each of its own,
    shows what that will be."""

    def __init__(self, name, optimizer):
        self.name, self.part, self.optimizer = name, optimizer, optimizer
        self.buffers, self.parameters = [], []
        self.kept = []  # for each parameter: the places of its tensors by key
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                made = self._state_after_a_step(group, parameter)
                self.kept.append({key: _Place(f"{name}.{len(self.kept)}.{key}", torch.zeros_like(value), {}, key)
                                  for key, value in made.items() if torch.is_tensor(value)})
                self.parameters.append(parameter)
        self.places = [place for kept in self.kept for place in kept.values()]

    def _state_after_a_step(self, group, parameter):
        trial = object.__new__(type(self.optimizer))
        trial.__dict__.update(self.optimizer.__dict__)
        trial.__dict__.pop("step", None)  # a scheduler's, for the optimizer itself
        for hooks in [key for key in trial.__dict__ if key.endswith("_hooks")]:
            trial.__dict__[hooks] = OrderedDict()
        like = torch.zeros_like(parameter).requires_grad_()
        like.grad = torch.zeros_like(like)
        trial.state = defaultdict(dict)
        if parameter in self.optimizer.state:  # Adagrad has one from the start
            trial.state[like] = copy.deepcopy(self.optimizer.state[parameter])
        trial.param_groups = [{**group, "params": [like]}]
        try:
            type(self.optimizer).step(trial)
        except Exception as error:
            raise ValueError(f"{self.name}: {type(self.optimizer).__name__} cannot show in one step what its "
                             f"state will be ({error}): it cannot be part of an elastic state") from error
        return trial.state.get(like, {})

    def values(self):
        groups = [{key: value for key, value in group.items() if key != "params"}
                  for group in self.optimizer.param_groups]
        states = []
        for number, parameter in enumerate(self.parameters):
            state = self.optimizer.state.get(parameter)
            states.append(state and {key: None if key in self.kept[number] and torch.is_tensor(value)
                                     else (value,) for key, value in state.items()})
        return groups, states

    def set_values(self, values):
        groups, states = values
        for group, saved in zip(self.optimizer.param_groups, groups):
            group.update(saved)
        for parameter, state, kept in zip(self.parameters, states, self.kept):
            parameter.grad = None
            self.optimizer.state.pop(parameter, None)
            if state is not None:
                self.optimizer.state[parameter] = {
                    key: kept[key].memory if value is None else value[0] for key, value in state.items()}

    def adopt(self):
        """The optimizer's own tensors go into the memory that is kept for them."""
        if sum(len(group["params"]) for group in self.optimizer.param_groups) != len(self.parameters):
            raise ValueError(f"{self.name}: its parameters are others than when the state was made")
        for number, (parameter, kept) in enumerate(zip(self.parameters, self.kept)):
            state = self.optimizer.state.get(parameter, {})
            for key, value in state.items():
                if not torch.is_tensor(value):
                    continue
                if key not in kept:
                    raise ValueError(f"{self.name}: parameter {number} has got '{key}', which a first step "
                                     "did not make: it has no place in the state")
                kept[key].holder = state
                kept[key].adopt()


class _Dict:
    """Schedulers, scalers, loaders: whatever has a state_dict."""
    buffers = places = ()

    def __init__(self, name, thing):
        self.part = self.thing = thing
        self.values = thing.state_dict

    def set_values(self, values):
        getattr(self.thing, "_per_optimizer_states", {}).clear()  # a GradScaler's, of a step that was broken off
        self.thing.load_state_dict(values)

    def adopt(self):
        pass


class TorchState(Own):
    """What training consists of: modules, optimizers, tensors, whatever has state_dict() and
    load_state_dict(), and plain values that can be pickled. All are attributes by their names;
    plain values may be set (state.epoch += 1).

    To be made when modules and tensors are on their device, on all ranks alike. Their memory is
    part of the state as it is, and so is that of what optimizers make for each parameter.
    room: bytes that everything but tensors may take when pickled.
    shard_replicas: how many ranks keep a copy of each other rank's shards, for a state with sharded(); None: there
    is nothing sharded.
    random_state: whether each rank's random numbers are part of the state."""

    _HELD, _IN_PLACE = "tensors", "{name}.copy_() or {name}.load_state_dict()"
    _begun = False  # one of this process's

    def __init__(self, *, room=1 << 18, shard_replicas=None, random_state=True, **parts):
        values = torch.zeros(room, dtype=torch.uint8)
        own = {"_parts": parts, "_plain": {}, "_valued": {}, "_callbacks": [], "_folder": None, "_kept": None,
               "_comm": None, "_on_gpu": None, "_values": values,
               "_bytes": memoryview((ctypes.c_char * room).from_address(values.data_ptr())).cast("B")}
        own.update(self._own(shard_replicas, random_state))
        self.__dict__.update(own)
        for name, part in parts.items():
            if hasattr(type(self), name) or name in own:
                raise ValueError(f"'{name}' is something else of a state: take another name")
            kind = _kind(part)
            if kind is None:
                self._plain[name] = part
            else:
                self._valued[name] = kind(name, part)

    def snapshots(self, folder, every, keep=1):
        """Every so many commits are also written to a folder, in the background; a job that is
        started anew begins from the newest. They hold pickled values: only load what you trust."""
        if self._kept is not None:
            raise RuntimeError("snapshots() comes before run()")
        self.__dict__["_folder"] = (os.fspath(folder), every, keep)

    def restore(self):
        """Back to the last commit, on this rank."""
        self._for_train("restore")
        super().restore()

    # -- For run().

    def _check(self):
        """Before others are met."""
        if TorchState._begun:
            raise RuntimeError("run() is for once in a process: who comes later would begin with the first")
        self._adopt()
        self._write_values()

    def _begin(self, comm):
        TorchState._begun = True
        memory = (place.memory for kind in self._valued.values() for place in kind.places)
        self.__dict__.update(_comm=comm, _kept=_core.new_state(_borrowed(comm), 1, self._shard_replicas()),
                             _on_gpu=next((tensor for tensor in memory if tensor.is_cuda), None))
        for kind in self._valued.values():
            for place in kind.places:
                self._register(place.name, place.memory)
        self._register("_values", self._values)
        self._begin_own()
        if self._folder is not None:
            self._kept.snapshots(*self._folder)

    def _register(self, name, memory):
        # Its bytes in the order in which they lie, whatever its type and its strides are.
        self._kept.replicated(name, memory.as_strided((memory.numel(),), (1,)).view(torch.uint8))

    def _in_train(self):
        return self._kept is not None

    def _adopt(self):
        for kind in self._valued.values():
            kind.adopt()

    def _share(self):
        """Buffers are shared, too."""
        by_device = defaultdict(list)
        by_device["cpu"].append(self._values[:self._HEAD])
        for kind in self._valued.values():
            for place in kind.buffers:
                by_device[place.memory.device.type].append(place.memory)
        for tensors in by_device.values():
            self._comm.share_from_first(tensors)
        end = self._values_end()
        if end > self._HEAD:
            self._comm.share_from_first([self._values[self._HEAD:end]])
        if self._on_gpu is not None:
            self._comm.follow_stream(self._on_gpu)


def _kind(part):
    if isinstance(part, torch.nn.Module):
        return _Module
    if isinstance(part, torch.optim.Optimizer):
        return _Optimizer
    if torch.is_tensor(part):
        return _Tensor
    return _Dict if hasattr(part, "state_dict") and hasattr(part, "load_state_dict") else None


# -- Rounds.


_CAPSULE_NAME = b"dl_comm"  # which a capsule points to


def _borrowed(comm):
    """The same communicator for libdlelastic's state."""
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi))
    return _core.borrow(new_capsule(comm.address, _CAPSULE_NAME, None), comm)


def _join():
    """This process's communicator, of the launcher's rounds where it forms them."""
    if dist.is_initialized():
        raise RuntimeError("run() begins torch.distributed itself, in each round: leave out init_process_group()")
    if _elastic():
        return join_rounds()
    if "RANK" in os.environ:
        dist.init_process_group("dlring")
    else:
        dist.init_process_group("dlring", store=dist.HashStore(), rank=0, world_size=1)
    return communicator()


def _elastic():
    return "DLAUNCH_AGENT" in os.environ


class _Gone:
    def __getattr__(self, name):
        raise RuntimeError("this DistributedDataParallel is of an earlier round: make it anew in each, within train()")


def _leave(comm):
    """Nothing of the round goes on, and nothing of it is kept: hooks of its DistributedDataParallel
    would go off in the next one. Something may still know that, as a Trainer or an exception does."""
    comm.settle()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()
    for thing in gc.get_objects():
        if issubclass(type(thing), DistributedDataParallel):
            thing.reducer = thing.logger = _Gone()


def run(train):
    """Decorates train(state, ...), which is called in each round until it returns in one on all
    ranks; what it returns there is the result. Exceptions that are not because of a lost worker
    pass through."""

    @functools.wraps(train)
    def in_rounds(state, *args, **kwargs):
        if not isinstance(state, TorchState):
            raise TypeError("train() is given a TorchState first; a method of something is called by "
                            "run(something.train)(state)")
        state._check()
        comm = _join()
        state._begin(comm)
        recovers = False
        while True:
            if recovers:
                state._recover()
            try:
                if not recovers:
                    state._sync()
                if not dist.is_initialized():
                    dist.init_process_group("dlring", store=comm.store(), rank=comm.rank, world_size=comm.size)
                state._resume()
                if recovers:
                    for callback in state._callbacks:
                        callback()
                result = train(state, *args, **kwargs)
                state._finish()
                return result
            except RoundOver:
                pass
            except Exception as error:
                if not _elastic() or not (comm.lost or isinstance(error, PeerLost)):
                    raise
            _leave(comm)
            recovers = True

    return in_rounds


# -- Data.


class _Order:
    """The batches of this rank: the samples of an epoch in an order of their own, cut into global
    batches, of which each rank has its share."""

    def __init__(self, samples, global_batch, shuffle, seed, drop_last):
        if not 1 <= global_batch:
            raise ValueError("a global batch has at least 1 sample")
        if samples < (global_batch if drop_last else 1):
            raise ValueError(f"{samples} samples make no batch")
        self.samples, self.global_batch, self.shuffle, self.seed = samples, global_batch, shuffle, seed
        self.end = samples - samples % global_batch if drop_last else samples
        self.epoch = self.position = 0

    def advance(self):
        self.position += self.global_batch
        if self.position >= self.end:
            self.epoch, self.position = self.epoch + 1, 0

    def __len__(self):
        return -(-(self.end - self.position) // self.global_batch)

    def __iter__(self):
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        if self.shuffle:
            generator = torch.Generator().manual_seed(((self.seed << 32) + self.epoch) % (1 << 64))
            order = torch.randperm(self.samples, generator=generator).tolist()
        else:
            order = range(self.samples)
        for first in range(self.position, self.end, self.global_batch):
            batch = order[first:min(first + self.global_batch, self.end)]
            if len(batch) < size:  # nobody goes without
                yield [batch[rank % len(batch)]]
            else:
                yield list(batch[len(batch) * rank // size:len(batch) * (rank + 1) // size])


def _check_loader(dataset, global_batch, shuffle, options):
    """Raises TypeError for what torch's DataLoader takes and ours cannot."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise TypeError(
            "elastic.DataLoader: an IterableDataset is not supported, because its place cannot be part of the "
            "state. Use a data set with __len__ and __getitem__, or torch's DataLoader and a value of the state "
            "that says how far the program has come")
    if not hasattr(type(dataset), "__len__") or not hasattr(type(dataset), "__getitem__"):
        raise TypeError(f"elastic.DataLoader: the data set needs __len__ and __getitem__, and "
                        f"{type(dataset).__name__} lacks one of them")
    instead = {"sampler": "the order comes from shuffle and seed",
               "batch_sampler": "the batches come from global_batch, shuffle and seed",
               "batch_size": "global_batch counts the samples of all ranks together",
               "generator": "the order comes from seed"}
    for option, reason in instead.items():
        if options.get(option) is not None:
            raise TypeError(f"elastic.DataLoader: {option} is not supported: {reason}")
        options.pop(option, None)
    if options.get("persistent_workers"):
        raise TypeError("elastic.DataLoader: persistent_workers is not supported: each pass over the loader may "
                        "begin in another round, with other workers")
    if isinstance(global_batch, bool) or not isinstance(global_batch, int):
        raise TypeError(f"elastic.DataLoader: global_batch is the number of samples in one step of all ranks, and "
                        f"not {global_batch!r}")
    if shuffle not in (True, False, None):
        raise TypeError(f"elastic.DataLoader: shuffle is True or False, and not {shuffle!r}")


class DataLoader(torch.utils.data.DataLoader):
    """torch's, which goes through a data set epoch by epoch, one global batch of all ranks a step,
    and whose place in it is part of the state: whoever dies, each sample of an epoch is in one
    committed step. Iterating goes through what is left of the epoch. The order depends on seed and
    epoch alone, so a job of any size sees the same batches; where their size does not divide by
    that of the job some ranks have a sample more, and a last batch of fewer samples than ranks has
    some twice.

    epoch, position: where the next batch begins. options: as torch's, but for sampler, batch_sampler
    and batch_size. The data set has __len__ and __getitem__, as a torch.utils.data.Dataset has: what
    is not supported raises TypeError with a sentence that says so."""

    def __init__(self, dataset, global_batch, *, shuffle=True, seed=0, drop_last=False, **options):
        _check_loader(dataset, global_batch, shuffle, options)
        self.order = _Order(len(dataset), global_batch, shuffle, seed, drop_last)
        self._seeds = torch.Generator()  # of its own: passing over the data uses none of the program's random numbers
        super().__init__(dataset, batch_sampler=self.order, generator=self._seeds, **options)

    @property
    def epoch(self):
        return self.order.epoch

    @property
    def position(self):
        return self.order.position

    def __iter__(self):
        self._seeds.manual_seed(((self.order.seed << 32) + self.order.epoch) % (1 << 64))
        for batch in super().__iter__():
            self.order.advance()
            yield batch

    def state_dict(self):
        return {"epoch": self.order.epoch, "position": self.order.position}

    def load_state_dict(self, place):
        self.order.epoch, self.order.position = place["epoch"], place["position"]
        if self.order.position >= self.order.end:  # of a snapshot, when there were more samples
            self.order.epoch, self.order.position = self.order.epoch + 1, 0

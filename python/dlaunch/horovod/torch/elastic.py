"""Elastic trainings with PyTorch: see dlaunch.horovod.elastic."""

import copy
import math
import random

import torch

from ..elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run
from .functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Divides the samples of a dataset among the ranks, without those that this epoch has already used.

    Pass it to DataLoader(sampler=...) and to TorchState(). Call record_batch() after each batch, so that a new round
    continues with the rest of the epoch, and set_epoch() after each epoch. dataset: of constant length. seed: the same
    on all ranks. As with Horovod's, some samples are repeated if the rest does not divide evenly."""

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch):
        """Begins again with all samples, in the order of this epoch."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """Records that each rank has taken batch_size samples."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self):
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict):
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self):
        """Divides the rest among the present ranks."""
        self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        left = self.remaining_indices
        even = (left * math.ceil(self.total_size / len(left)))[:self.total_size] if left else []
        return iter(even[self.rank::self.num_replicas])

    def __len__(self):
        return self.num_samples


class StateHandler:
    """Keeps an object with state_dict() and load_state_dict()."""

    def __init__(self, value):
        self.value = value
        self.save()

    def save(self):
        self._kept = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(copy.deepcopy(self._kept))

    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()

    def set_value(self, value):
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    def sync(self):
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


_registry = [(torch.nn.Module, ModelStateHandler), (torch.optim.Optimizer, OptimizerStateHandler),
             (torch.optim.lr_scheduler._LRScheduler, StateHandler),
             (torch.optim.lr_scheduler.ReduceLROnPlateau, StateHandler), (ElasticSampler, StateHandler)]
if hasattr(torch.optim.lr_scheduler, "LRScheduler"):
    _registry.append((torch.optim.lr_scheduler.LRScheduler, StateHandler))


def get_handler_registry():
    """The handlers for types of objects: a list of (type, handler class)."""
    return _registry


def set_handler_registry(registry):
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """The parts of a training: modules, optimizers, schedulers, ElasticSamplers, and values that can be pickled. All
    are attributes by their names; two of these are model= and optimizer=."""

    def __init__(self, model=None, optimizer=None, **kwargs):
        parts = {**kwargs, "model": model, "optimizer": optimizer}
        self._handlers, plain = {}, {}
        for name, part in parts.items():
            kind = next((kind for of, kind in _registry if isinstance(part, of)), None)
            if kind is None:
                plain[name] = part
            else:
                self._handlers[name] = kind(part)
                super().__setattr__(name, part)
        super().__init__(broadcast_object, rank, **plain)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self):
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()
        super().reset()

    def __setattr__(self, name, value):
        if name in self.__dict__.get("_handlers", {}):
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)


__all__ = ["ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState",
           "run"]

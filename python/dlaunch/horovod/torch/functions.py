"""Parameters, optimizers' states and other objects from one rank to all."""

import torch

from .. import _objects
from .._world import global_process_set
from . import _tensors
from .mpi_ops import broadcast_async_, synchronize


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """params: a model's state_dict(), named_parameters() or parameters(). Entries that are no tensors stay as they
    are."""
    pairs = sorted(params.items()) if isinstance(params, dict) else \
        [pair if isinstance(pair, tuple) else (None, pair) for pair in params]
    handles = [broadcast_async_(tensor, root_rank, None if name is None else f"parameter.{name}", process_set)
               for name, tensor in pairs if torch.is_tensor(tensor)]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(optimizer, root_rank, model=None, process_set=global_process_set):
    """Copies the optimizer of rank root_rank to all ranks: options such as the learning rate, and state such as
    momenta. A rank need not make its state before. model: is not used."""
    from .._world import world
    state, tensors = optimizer.state_dict(), []
    mine = world.rank() == root_rank
    structure = _objects.broadcast_object(_tensors, _without_tensors(state, tensors) if mine else None, root_rank, None,
                                          process_set)
    if not mine:
        state = _with_tensors(structure, tensors)
    broadcast_parameters(tensors, root_rank, process_set)
    if not mine:
        optimizer.load_state_dict(state)


class _Tensor:
    """Stands for a tensor in a structure."""

    def __init__(self, tensor):
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype


def _without_tensors(tree, tensors):
    if torch.is_tensor(tree):
        tensors.append(tree)
        return _Tensor(tree)
    if isinstance(tree, dict):
        return {key: _without_tensors(value, tensors) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)) and type(tree) in (list, tuple):
        return type(tree)(_without_tensors(value, tensors) for value in tree)
    return tree


def _with_tensors(tree, tensors):
    if isinstance(tree, _Tensor):
        tensors.append(torch.empty(tree.shape, dtype=tree.dtype))
        return tensors[-1]
    if isinstance(tree, dict):
        return {key: _with_tensors(value, tensors) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_with_tensors(value, tensors) for value in tree)
    return tree


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The object of rank root_rank, pickled, on every rank."""
    return _objects.broadcast_object(_tensors, obj, root_rank, name, process_set)


def allgather_object(obj, name=None, process_set=global_process_set):
    """A list of the objects of all ranks."""
    return _objects.allgather_object(_tensors, obj, name, process_set)

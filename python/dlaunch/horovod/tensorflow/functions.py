"""Variables and other objects from one rank to all."""

import tensorflow as tf

from .. import _arrays, _objects
from .._world import global_process_set
from .mpi_ops import broadcast_


def broadcast_variables(variables, root_rank, process_set=global_process_set, inplace=True):
    """Copies the variables of rank root_rank to all ranks. inplace: is not used."""
    # A variable of Keras 3 contains one of TensorFlow.
    own = [variable if isinstance(variable, tf.Variable) else variable.value for variable in variables]
    if own:
        broadcast_(own, root_rank, process_set=process_set)


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """The object of rank root_rank, pickled, on every rank. session: is not used."""
    return _objects.broadcast_object(_arrays, obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank=0, session=None, name=None, process_set=global_process_set):
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """A list of the objects of all ranks."""
    return _objects.allgather_object(_arrays, obj, name, process_set)

"""Horovod's API for TensorFlow 2. help(dlaunch.horovod) is the manual.

Tensors go through NumPy's arrays, eagerly and in a tf.function; XLA cannot compile that. Sessions of TensorFlow 1, its
hooks and its optimizers are not supported."""

from .._errors import HorovodInternalError, HostsUpdatedInterrupt
from . import elastic
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables
from .gradients import DistributedGradientTape, DistributedOptimizer
from .mpi_ops import *  # noqa: F401,F403

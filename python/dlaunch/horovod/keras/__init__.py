"""Horovod's API for Keras 3, whose back end is TensorFlow, and for older ones. help(dlaunch.horovod) is the manual."""

import keras

if hasattr(keras, "backend") and keras.backend.backend() != "tensorflow":
    raise ImportError(f"dlaunch.horovod.keras is for Keras on TensorFlow, and its back end here is "
                      f"{keras.backend.backend()}: set KERAS_BACKEND=tensorflow, or use dlaunch.torch or dlaunch.jax")

from .._errors import HorovodInternalError, HostsUpdatedInterrupt
from .._keras import allgather, allreduce, broadcast, reducescatter
from ..basics import *  # noqa: F401,F403
from ..tensorflow import Compression, DistributedOptimizer, barrier, broadcast_object, broadcast_variables, init, join
from . import callbacks, elastic

"""Horovod's API for tf.keras: Keras 3, or tf_keras if TF_USE_LEGACY_KERAS is set. help(dlaunch.horovod) is the
manual."""

from ..._errors import HorovodInternalError, HostsUpdatedInterrupt
from ..._keras import allgather, allreduce, broadcast, reducescatter
from ...basics import *  # noqa: F401,F403
from .. import Compression, DistributedOptimizer, barrier, broadcast_object, broadcast_variables, init, join
from . import callbacks, elastic

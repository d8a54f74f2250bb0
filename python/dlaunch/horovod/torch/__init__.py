"""Horovod's API for PyTorch. help(dlaunch.horovod) is the manual."""

from .._errors import HorovodInternalError, HostsUpdatedInterrupt
from . import elastic
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import *  # noqa: F401,F403
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm

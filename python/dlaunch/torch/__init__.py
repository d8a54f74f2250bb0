"""torch.distributed's back end "dlring": collectives by libdlring. Importing this registers it.

    import torch.distributed as dist
    import dlaunch.torch

    dist.init_process_group("dlring")      # or "cpu:dlring,cuda:nccl"

PeerLost, which is dlaunch.PeerLost, is raised when another rank has died or left; the text names it.
dlaunch.torch.elastic lets a training go on after that. dlaunch.torch.DiLoCo and LocalSGD (dlaunch.torch.outer) train
locally, and average seldom. Compression and PowerSGD (dlaunch.torch.compression) send DistributedDataParallel's
gradients in fewer bytes. Partial (dlaunch.torch.averages) averages them without waiting for slow ranks.

The back end is a library for one minor release of PyTorch and every Python. It lies beside this file, as
libdlring_torch-2.15.so (libdlring_torch-2.5-oldabi.so for a PyTorch with the old ABI of C++). For another release this
package compiles it once, if its source (dlring_torch_source) and a C++ compiler (CXX, or c++) are there: into
$XDG_CACHE_HOME/dlaunch, or ~/.cache/dlaunch if that is not set. It loads no file from there that another user may have
written. For a PyTorch older than 2.4 the build of dlaunch makes a module for one release and one Python.
"""

import importlib.util

import torch

from .._errors import PeerLost

__all__ = ["Communicator", "Compression", "DiLoCo", "LocalSGD", "Partial", "PeerLost", "PowerSGD", "communicator",
           "compressed", "join_rounds", "partial"]

if torch.__version__.startswith(("1.", "2.0.", "2.1.", "2.2.", "2.3.")) and importlib.util.find_spec(
        ".dlring_torch", __name__):
    from .dlring_torch import Communicator, communicator, join_rounds
else:
    from ._library import Communicator, communicator, join_rounds

from .averages import Partial, partial
from .compression import Compression, PowerSGD, compressed
from .outer import DiLoCo, LocalSGD

"""torch.distributed's back end "dlring": collectives by libdlring. Importing this registers it.

    import torch.distributed as dist
    import dlaunch.torch

    dist.init_process_group("dlring")      # or "cpu:dlring,cuda:nccl"

PeerLost, which is dlaunch.PeerLost, is raised where another rank has died or left; the text names it. With
dlaunch.torch.elastic a training goes on after that.

The work is done by a library that is made for one minor release of PyTorch and serves every Python. It
lies beside this file, as libdlring_torch-2.15.so (libdlring_torch-2.5-oldabi.so for a PyTorch with the old
ABI of C++). For another release it is compiled once, if its source lies here, too (dlring_torch_source),
and there is a C++ compiler (CXX, or c++): into $XDG_CACHE_HOME/dlaunch, which is ~/.cache/dlaunch where
that is not set. Nothing is loaded from there that another user may have written. For a PyTorch older than 2.4
the build of dlaunch makes a module for one release and one Python.
"""

import importlib.util

import torch

from .._errors import PeerLost

__all__ = ["Communicator", "PeerLost", "communicator", "join_rounds"]

if torch.__version__.startswith(("1.", "2.0.", "2.1.", "2.2.", "2.3.")) and importlib.util.find_spec(
        ".dlring_torch", __name__):
    from .dlring_torch import Communicator, communicator, join_rounds
else:
    from ._library import Communicator, communicator, join_rounds

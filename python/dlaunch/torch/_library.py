"""The library of dlaunch.torch, for PyTorch 2.4 and newer: finds or compiles it, and loads it."""

import atexit
import ctypes
import glob
import os
import re
import types

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from .._errors import Corrupt, PeerLost

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SOURCE = os.path.join(_FOLDER, "dlring_torch_source")


def _release():
    """The release of PyTorch, such as 2.15."""
    return re.match(r"\d+\.\d+", torch.__version__)[0]


def _own():
    """The name of a library for this PyTorch, as in _served()."""
    # Before 2.6 the wheels of PyPI had another ABI of C++.
    return _release() + ("" if torch._C._GLIBCXX_USE_CXX11_ABI else "-oldabi")


def _served():
    """The releases with a library here."""
    names = glob.glob(os.path.join(glob.escape(_FOLDER), "libdlring_torch-*.so"))
    found = {re.search(r"-(\d[\d.]*(-oldabi)?)\.so$", name): name for name in names}
    return {match[1]: name for match, name in found.items() if match}


def _compiled(broken=None):
    """Compiles a library for this PyTorch from the source."""
    recipe = types.ModuleType("build_release")
    recipe.__file__ = os.path.join(_SOURCE, "build_release.py")
    with open(recipe.__file__, encoding="utf-8") as source:  # an import would leave a file after an uninstallation
        exec(compile(source.read(), recipe.__file__, "exec"), recipe.__dict__)
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dlaunch")
    path = recipe.cached(cache, broken)
    return path, recipe.identity(path)


def _loaded_from_cache():
    broken = None
    while True:
        path, identity = _compiled(broken)
        try:
            torch.ops.load_library(path)
            return path
        except OSError as error:
            if broken:
                raise ImportError(f"dlaunch.torch cannot load {path}, which it has just compiled: {error}") from error
        broken = identity


def _loaded():
    """Loads the library and returns its path."""
    served = _served()
    if _own() in served:
        torch.ops.load_library(served[_own()])
        return served[_own()]
    reason = "its source is not here"
    if os.path.isdir(_SOURCE):
        try:
            return _loaded_from_cache()
        except OSError as e:
            reason = f"it cannot be compiled: {e}"
    numbers = sorted(served, key=lambda name: [int(part) for part in name.partition("-")[0].split(".")])
    old = ", which has the old ABI of C++" if _own() != _release() else ""
    raise ImportError(f"dlaunch.torch has no library for PyTorch {torch.__version__}{old}, and {reason}. "
                      f"It serves PyTorch {', '.join(numbers) or '(no release)'}")


def _load():
    path = _loaded()
    calls = ctypes.PyDLL(path)
    calls.dlring_torch_raise.argtypes = [ctypes.py_object, ctypes.py_object]
    calls.dlring_torch_raise(PeerLost, Corrupt)
    atexit.register(calls.dlring_torch_close)
    return torch.ops.dlring


_ops = _load()


class Communicator:
    """libdlring's communicator of all ranks, in an elastic process from round to round: for dlaunch.torch.elastic."""

    def __init__(self, native):
        self._native = native

    rank = property(lambda self: self._native.rank())
    size = property(lambda self: self._native.size())
    round = property(lambda self: self._native.round())
    lost = property(lambda self: self._native.lost(), doc="A call has found that the round is broken.")
    address = property(lambda self: self._native.address(), doc="Of the dl_comm.")

    def settle(self):
        """Waits until no collective is running."""
        self._native.settle()

    def share_from_first(self, tensors):
        """Copies rank 0's bytes to all ranks."""
        self._native.share_from_first(tensors)

    def follow_stream(self, tensor):
        """Later calls follow the present work of the current stream of its GPU."""
        self._native.follow_stream(tensor)

    def store(self):
        """c10d's store of the round: keys that the ranks share in libdlring."""
        return ProcessGroup.unbox(self._native.store()).get_group_store()


def join_rounds():
    """Enters the launcher's rounds, and waits for the first."""
    return Communicator(_ops.join_world())


def communicator():
    """The existing communicator, or None."""
    present = _ops.present_world()
    return Communicator(present[0]) if present else None


def _create(options, own):
    if own is not None:
        raise ValueError("dlring has no options")
    where = ProcessGroup(options.store, options.group_rank, options.group_size)
    group = _ops.make_group(where.boxed(), options.group_rank, options.group_size, options.timeout.total_seconds(),
                            options.group_id, list(options.global_ranks_in_group),
                            getattr(options, "enable_reconfigure", False))
    return ProcessGroup.unbox(group)._get_backend(torch.device("cpu"))


dist.Backend.register_backend("dlring", _create, extended_api=True, devices=["cpu", "cuda"])

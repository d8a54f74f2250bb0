"""Communicators for the parts of dlaunch.torch that make calls of the package dlaunch."""

import ctypes

import torch.distributed as dist

from .. import _core

_CAPSULE_NAME = b"dl_comm"  # the capsule's pointer type


def borrowed(comm):
    """The same communicator as a dlaunch.Communicator."""
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi))
    return _core.borrow(new_capsule(comm.address, _CAPSULE_NAME, None), comm)


def default_communicator():
    """That of the process group "dlring" if there is one, else a new one of all ranks."""
    from . import communicator
    comm = communicator() if dist.is_initialized() else None
    if comm is not None:
        return borrowed(comm)
    if dist.is_initialized():
        raise RuntimeError("the process group has another back end than dlring: give communicator=dlaunch.init()")
    return _core.init()

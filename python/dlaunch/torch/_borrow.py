"""A communicator of the back end, for the calls of the package dlaunch."""

import ctypes

from .. import _core

_CAPSULE_NAME = b"dl_comm"  # the capsule's pointer type


def borrowed(comm):
    """The same communicator as a dlaunch.Communicator."""
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi))
    return _core.borrow(new_capsule(comm.address, _CAPSULE_NAME, None), comm)

"""libdlelastic's state for dlelastic_torch, which is the manual: what it does not say is as in
<dlaunch/elastic.h>. Memory is given by its address; who gives it keeps it where it is."""

import ctypes
import os

from dlring_torch import PeerLost

# Of dl_result.
_INVALID, _PEER_LOST = 1, 4
# Where libdlelastic may be from here: beside this file, in a build, where it was installed.
_PLACES = ".", "../state", "@LIBDIR@"


class _Version(ctypes.Structure):
    _fields_ = [("round", ctypes.c_uint64), ("number", ctypes.c_uint64)]


def _load():
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(folder, place, "libdlelastic.so.0") for place in _PLACES]
    found = [path for path in paths if os.path.exists(path)]
    library = ctypes.CDLL(found[0] if found else "libdlelastic.so.0")  # the loader may know
    state, text = ctypes.c_void_p, ctypes.c_char_p
    for name, *arguments in (
            ("new", state, state, ctypes.POINTER(state)), ("replicated", state, text, ctypes.c_void_p, ctypes.c_size_t),
            ("snapshots", state, text, ctypes.c_int, ctypes.c_int), ("sync", state), ("commit", state, ctypes.c_int),
            ("restore", state), ("recover", state), ("finish", state), ("free", state), ("round_over", state),
            ("committed", state), ("last_error", state)):
        getattr(library, f"dl_state_{name}").argtypes = arguments
    library.dl_state_free.restype = None
    library.dl_state_committed.restype = _Version
    library.dl_state_last_error.restype = text
    return library


_library = _load()


class State:
    def __init__(self, communicator):
        """communicator: dlring_torch's."""
        self._communicator = communicator  # outlives the state
        self._free = _library.dl_state_free
        self._state = ctypes.c_void_p()
        if _library.dl_state_new(communicator.address, None, ctypes.byref(self._state)) != 0:
            raise RuntimeError("dlelastic: no state could be made")

    def __del__(self):
        if self._state:
            self._free(self._state)

    def replicated(self, name, at, size):
        self._check(_library.dl_state_replicated(self._state, name.encode(), at, size))

    def snapshots(self, folder, every, keep):
        self._check(_library.dl_state_snapshots(self._state, os.fsencode(folder), every, keep))

    def sync(self):
        self._check(_library.dl_state_sync(self._state))

    def commit(self):
        self._check(_library.dl_state_commit(self._state, 0))

    def restore(self):
        self._check(_library.dl_state_restore(self._state))

    def recover(self):
        self._check(_library.dl_state_recover(self._state))

    def finish(self):
        self._check(_library.dl_state_finish(self._state))

    @property
    def round_over(self):
        return _library.dl_state_round_over(self._state) != 0

    @property
    def commits(self):
        """That led to this state."""
        return _library.dl_state_committed(self._state).number

    def _check(self, result):
        if result == 0:
            return
        text = "dlelastic: " + _library.dl_state_last_error(self._state).decode(errors="replace")
        raise {_INVALID: ValueError, _PEER_LOST: PeerLost}.get(result, RuntimeError)(text)

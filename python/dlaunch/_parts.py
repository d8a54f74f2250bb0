"""The parts of an elastic state, by name, and their copies in memory: the common part of the states for NumPy and for
PyTorch.
"""

import os
import pickle
import struct

from . import _contract
from ._errors import PeerLost


class RoundOver(BaseException):
    """commit() raises it on all ranks when the job grows, shrinks or loses a host in good order; run() then calls
    train() again in the next round. Only run() should catch it. It is not an Exception, so that handlers of errors
    ignore it."""


def in_elastic_job():
    """Whether dlaunch started this process, and forms another round when a rank is lost."""
    return _contract.AGENT in os.environ


def run_rounds(one_round, lost, into_next=lambda: None):
    """The loop of run(): calls one_round(recovers) in each round and returns its result. It repeats the call, after
    into_next(), when the round is over or a rank is lost: by PeerLost, or by another error while lost() is true. Other
    errors pass through; outside of an elastic job every error does."""
    recovers = False
    while True:
        try:
            return one_round(recovers)
        except RoundOver:
            pass
        except Exception as error:
            if not in_elastic_job() or not (isinstance(error, PeerLost) or lost()):
                raise
        into_next()
        recovers = True


class Parts:
    """Base of a state. Its __dict__ has:

    _parts: all parts by name. _plain: the parts that are plain values. _valued: the parts whose values() are pickled
    beside the plain ones, and which set_values() restores.
    _bytes: the registered memory for pickled values, as a memoryview of bytes.
    _callbacks, _comm (with the rank of this round), and _kept, libdlelastic's state; None: not yet."""

    _HELD = _IN_PLACE = ""  # for messages: the parts that are not pickled, and how to change them
    _HEAD = 4096            # bytes that the ranks always share

    def _in_train(self):
        """Whether run() has called train()."""
        raise NotImplementedError

    def _share(self):
        """Copies rank 0's pickled values, and other parts that may differ, to all ranks."""
        raise NotImplementedError

    def _adopt(self):
        """Copies new values that the program has assigned to a part into the part's memory."""

    def __getattr__(self, name):
        parts = self.__dict__.get("_parts", {})
        if name in parts:
            return self._plain[name] if name in self._plain else parts[name]
        raise AttributeError(f"the state has no '{name}'")

    def __setattr__(self, name, value):
        if name in self._plain:
            self._plain[name] = value
        elif name not in self._parts:
            raise AttributeError(f"'{name}' is not part of the state: give it to {type(self).__name__}() as {name}=...")
        elif value is not self._parts[name]:  # an assignment of the same object, as in state.w -= step, is fine
            raise AttributeError(f"'{name}' is no plain value: change it in place, as by "
                                 f"{self._IN_PLACE.format(name=name)}")

    def register_reset_callbacks(self, callbacks):
        """run() calls these without arguments before it calls train() again in a new round."""
        self._callbacks.extend(callbacks)

    def commit(self):
        """Collective, within train(): after a loss all ranks return to this state. Leaves train() here when the
        launcher wants another round."""
        self._save()
        if self._kept.round_over:
            raise RoundOver

    def restore(self):
        """Returns to the last commit, on this rank."""
        self._kept.restore()
        self._load()

    @property
    def commits(self):
        """The number of commits up to this state."""
        return self._kept.commits if self._kept is not None else 0

    # -- For run().

    def _call_back(self):
        for callback in self._callbacks:
            callback()

    def _sync(self):
        self._kept.sync()
        self._load()

    def _recover(self):
        self._kept.recover()
        self._load()

    def _save(self):
        self._for_train("commit")
        self._adopt()
        if self._comm.rank == 0:
            self._write_values()
        self._share()
        self._kept.commit()
        if self._comm.rank != 0:
            self._plain.update(self._saved()[0])

    def _finish(self):
        self._save()
        self._kept.finish()

    def _for_train(self, call):
        if not self._in_train():
            raise RuntimeError(f"call {call}() in train(), after run() has called train()")

    def _values_end(self):
        return 8 + struct.unpack("<q", self._bytes[:8])[0]

    def _write_values(self):
        saved = self._pickled()
        if 8 + len(saved) > len(self._bytes):
            raise ValueError(f"everything but {self._HELD} takes {len(saved)} bytes when pickled, and there is room "
                             f"for {len(self._bytes) - 8}: give {type(self).__name__}() more by room=")
        self._bytes[:8 + len(saved)] = struct.pack("<q", len(saved)) + saved

    def _pickled(self):
        both = self._plain, {name: part.values() for name, part in self._valued.items()}
        try:
            return pickle.dumps(both, protocol=4)
        except Exception:
            for name, value in {**both[0], **both[1]}.items():
                try:
                    pickle.dumps(value, protocol=4)
                except Exception as error:
                    raise ValueError(f"{name}: it cannot be pickled, so it cannot be part of a state: "
                                     f"{error}") from error
            raise

    def _saved(self):
        return pickle.loads(self._bytes[8:self._values_end()])

    def _load(self):
        """Copies the registered memory into the parts."""
        plain, others = self._saved()
        self._plain.update(plain)
        for name, part in self._valued.items():
            if name not in others:
                raise ValueError(f"the snapshot belongs to another state: it has no '{name}'; to start over, use "
                                 f"another folder")
            part.set_values(others[name])

"""The parts of an elastic state, by name, and their way into memory: what the states for NumPy and for PyTorch
have in common.
"""

import os
import pickle
import struct

from ._errors import PeerLost


class RoundOver(BaseException):
    """Out of commit(), on all ranks: the job grows, shrinks or loses a host in good order, and train() is
    called again in the next round. For run(); not an error, so that no handler of errors takes it for one."""


def in_elastic_job():
    """Whether dlaunch started this process, which then forms another round when a rank is lost."""
    return "DLAUNCH_AGENT" in os.environ


def run_rounds(one_round, lost, into_next=lambda: None):
    """What run() does: returns the result of one_round(recovers), which is called in each round. It is called again,
    after into_next(), when the round is over or a rank is lost: by PeerLost, or by another error while lost() is
    true. Other errors pass through, and so does each outside of an elastic job."""
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
    """Base of a state, whose __dict__ has these:

    _parts: all parts by name. _plain: those of them that are plain values. _valued: those whose values() are
    pickled beside the plain ones, and which set_values() takes.
    _bytes: the registered memory for what is pickled, as a memoryview of bytes.
    _callbacks, _comm (with the rank of this round), and _kept, libdlelastic's state; None: not yet."""

    _HELD = _IN_PLACE = ""  # for messages: what is not pickled, and how it is changed
    _HEAD = 4096            # bytes that the ranks always share

    def _in_train(self):
        """run() has called train()."""
        raise NotImplementedError

    def _share(self):
        """Rank 0's pickled values, and what else may differ on other ranks, become everybody's."""
        raise NotImplementedError

    def _adopt(self):
        """What the program has put in a part's place goes into the part's memory."""

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
        elif value is not self._parts[name]:  # as it is in state.w -= step
            raise AttributeError(f"'{name}' is no plain value: change it in place, as by "
                                 f"{self._IN_PLACE.format(name=name)}")

    def register_reset_callbacks(self, callbacks):
        """Called without arguments before train() is called again in a new round."""
        self._callbacks.extend(callbacks)

    def commit(self):
        """Collective: this is what all come back to when somebody is lost. Within train(); when the launcher
        wants another round it is left here."""
        self._save()
        if self._kept.round_over:
            raise RoundOver

    def restore(self):
        """Back to the last commit, on this rank."""
        self._kept.restore()
        self._load()

    @property
    def commits(self):
        """How many led to this state."""
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
            raise RuntimeError(f"{call}() is for train(), once run() has called it")

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
                    raise ValueError(f"{name}: it cannot be pickled, and so be no part of a state: "
                                     f"{error}") from error
            raise

    def _saved(self):
        return pickle.loads(self._bytes[8:self._values_end()])

    def _load(self):
        """What is in the registered memory becomes that of the parts."""
        plain, others = self._saved()
        self._plain.update(plain)
        for name, part in self._valued.items():
            if name not in others:
                raise ValueError(f"the snapshot is of another state: it has no '{name}'; to begin anew, take "
                                 "another folder")
            part.set_values(others[name])

"""The exceptions of libdlring, by the number of its results."""


class Error(RuntimeError):
    """A call of libdlring has failed; the text says what, on which rank and host, and what to do."""


class InvalidError(Error, ValueError):
    """An argument is wrong, and the call did nothing."""


class SystemRefused(Error, OSError):
    """The system refused memory, a socket or a file."""


class OperationTimeout(Error, TimeoutError):
    """The time limit passed; the text names the missing ranks."""


class PeerLost(Error):
    """A rank died or left. rank: its number, or None if unknown."""

    rank = None


class Corrupt(PeerLost):
    """Ranks hold different results, and --verify has found it. rank: the rank with corrupt data, or None if the ranks
    cannot tell, or if it is this one: then its process must end."""


class Mismatch(Error):
    """Two ranks made different calls; the text names both."""


class Aborted(Error):
    """abort() was called on this rank."""


class AuthError(Error):
    """The ranks are of another job or another round, or have a wrong secret."""


class Unsupported(Error):
    """This build does not support it, or not for this type of elements."""


class ProtocolError(Error):
    """A peer sent bytes that make no sense."""


BY_RESULT = (Error, InvalidError, SystemRefused, OperationTimeout, PeerLost, Mismatch, Aborted, AuthError,
             Unsupported, ProtocolError, Corrupt)
for _kind in BY_RESULT:
    _kind.__module__ = "dlaunch"

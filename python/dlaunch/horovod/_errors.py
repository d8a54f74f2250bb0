"""Horovod's exceptions."""


class HorovodInternalError(RuntimeError):
    """A collective has failed: a rank was lost, the ranks disagree on a tensor, or Horovod was shut down. The text says
    which. Its __cause__ is dlaunch's own error, if any."""


class HostsUpdatedInterrupt(RuntimeError):
    """State.commit() raises it on all ranks: the job grows or shrinks. elastic.run() catches it.

    skip_sync: the ranks need not synchronize their state, because none is new."""

    def __init__(self, skip_sync=False):
        super().__init__("the job grows or shrinks")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised: it exists for programs that catch it."""

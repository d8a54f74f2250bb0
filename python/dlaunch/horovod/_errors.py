"""Horovod's exceptions."""


class HorovodInternalError(RuntimeError):
    """A collective has failed: a rank was lost, the ranks disagree on a tensor, or Horovod was shut down. The text
    says which. dlaunch's own error is its __cause__ where there is one."""


class HostsUpdatedInterrupt(RuntimeError):
    """Out of State.commit() on all ranks: the job grows or shrinks. elastic.run() takes it.

    skip_sync: the ranks need not synchronize their state, for none is new."""

    def __init__(self, skip_sync=False):
        super().__init__("the job grows or shrinks")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised: programs that catch it find its name."""

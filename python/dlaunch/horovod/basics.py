"""The common functions of the modules for all frameworks: this rank's place, process sets, the timeline, and the
build's features."""

from ._execute import OPS
from ._world import ProcessSet, global_process_set, world

Average, Sum, Min, Max, Product = OPS
Adasum = "Adasum"


def shutdown():
    """Leaves Horovod, on all ranks: pending collectives on others end with a HorovodInternalError. The end of the
    program calls it. init() may follow."""
    world.shut_down()


def is_initialized():
    return world.initialized


def rank():
    return world.rank()


def size():
    return world.size()


def local_rank():
    """This rank's number on this host."""
    return world.local_ranks().index(world.rank())


def local_size():
    """The number of ranks on this host."""
    return len(world.local_ranks())


def cross_rank():
    """This rank's number among the ranks with this local rank: the number of the host, if all hosts have as many
    ranks."""
    return world.cross_ranks().index(world.rank())


def cross_size():
    """The number of hosts that have a rank with this local rank."""
    return len(world.cross_ranks())


def is_homogeneous():
    """Whether all hosts have as many ranks."""
    return world.is_homogeneous()


def mpi_threads_supported():
    """False: no MPI is in use, so give mpi4py one of its own."""
    world.engine
    return False


def mpi_enabled():
    """False: libdlring moves the data."""
    return False


def gloo_enabled():
    """False: libdlring moves the data."""
    return False


def mpi_built():
    return False


def gloo_built():
    return False


def nccl_built():
    """0: tensors of GPUs go through the host's memory."""
    return 0


def ddl_built():
    return False


def ccl_built():
    return False


def cuda_built():
    return False


def rocm_built():
    return False


def start_timeline(file_path, mark_cycles=False):
    """Rank 0 writes a timeline for Chrome's trace viewer to this file from now on; on other ranks this does nothing.
    HOROVOD_TIMELINE=FILE begins one with init(); with HOROVOD_TIMELINE=DYNAMIC, or without it, none is written before
    this call. When the file cannot be written any more, on a full disk for example, rank 0 warns once and goes on
    without it."""
    world.start_timeline(file_path, mark_cycles)


def stop_timeline():
    """Completes the file."""
    world.stop_timeline()


def add_process_set(process_set):
    """A ProcessSet or a list of ranks. Collective, by all ranks of the job. Returns the ProcessSet."""
    return world.add_set(process_set)


def remove_process_set(process_set):
    """Collective, by all ranks of the job. False: it is the set of all ranks, which stays."""
    return world.remove_set(process_set)


def process_set_by_id(process_set_id):
    if process_set_id not in world.sets:
        raise ValueError(f"no process set has the number {process_set_id}")
    return world.sets[process_set_id]


def process_sets():
    """The registered sets, by number."""
    return [world.sets[number] for number in sorted(world.sets)]


def get_process_set_ids_and_ranks():
    return {number: list(process_set.ranks) for number, process_set in sorted(world.sets.items())}


__all__ = [name for name in dir() if not name.startswith("_") and name not in ("OPS", "world")]

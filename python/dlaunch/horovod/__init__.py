"""Horovod's API on libdlring: a program that Horovod's documentation teaches needs another import only.

    import torch
    import dlaunch.horovod.torch as hvd

    hvd.init()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    dlaunch --nproc 4 train.py

dlaunch.horovod.torch has what horovod.torch has, by the same names: init() to cross_size(); allreduce, allgather,
broadcast, alltoall and reducescatter, grouped, with _async and in place; join, barrier, poll and synchronize;
DistributedOptimizer; broadcast_parameters, broadcast_optimizer_state, broadcast_object and allgather_object;
process sets; Compression; SyncBatchNorm; timelines.

How it works: ranks submit collectives by name, in any order, from any thread. Rank 0 collects the names, and tells all
ranks which collectives are ready. A thread of each rank makes them, in one order, by libdlring. Small ones that are
ready together run as one.

Errors: a collective whose ranks disagree on shape, type, op or root raises HorovodInternalError on all of them, which
names the tensor and the ranks; Horovod goes on after it. A lost rank, or one that has shut Horovod down, raises
HorovodInternalError in all that is under way and comes later; its __cause__ is dlaunch's own error, such as
dlaunch.PeerLost. Wrong arguments are ValueErrors. A tensor that some rank does not submit is named on rank 0's stderr
after HOROVOD_STALL_CHECK_TIME_SECONDS (60), and ends all ranks after HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (never).

Environment: HOROVOD_FUSION_THRESHOLD (bytes, 128 MiB), HOROVOD_TIMELINE, HOROVOD_TIMELINE_MARK_CYCLES,
HOROVOD_STALL_CHECK_TIME_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS and HOROVOD_STALL_CHECK_DISABLE. dlaunch's
-x NAME=VALUE sets them.

What differs from Horovod:
- Tensors of GPUs go through the host's memory: a call waits for the GPU and copies. nccl_built(), mpi_built() and
  gloo_built() are false. For GPUs dlaunch.torch has DistributedDataParallel over NCCL.
- There is no cycle: a request goes to rank 0 at once. HOROVOD_CYCLE_TIME, the response cache, autotuning and
  hierarchical collectives have no counterpart, and their variables no effect.
- op=Adasum needs a number of ranks that is a power of 2, as Horovod's on CPUs. DistributedOptimizer(op=Adasum) reduces
  within step(), and not while backward() runs.
- Process sets may be added at any time, without HOROVOD_DYNAMIC_PROCESS_SETS.
- A rank that has joined takes part in all collectives: with zeros in reductions, without rows in allgather and
  alltoall. Of a broadcast it may not be the root.
- init(comm=...) takes all ranks only.
- Handles are objects, and synchronize() may be called again.
- broadcast_optimizer_state() takes optimizers of every kind, without a first step.
- Only rank 0 writes a timeline.
"""

"""Horovod's API on libdlring: a program from Horovod's documentation needs only another import.

    import torch
    import dlaunch.horovod.torch as hvd

    hvd.init()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    dlaunch --nproc 4 train.py

With `dlaunch --horovod` a program needs no other import: `import horovod.torch` gives dlaunch.horovod.torch, and all
other modules of Horovod that are here have both names, too.

dlaunch.horovod.torch has what horovod.torch has, by the same names: init() to cross_size(); allreduce, allgather,
broadcast, alltoall and reducescatter, grouped, with _async and in place; join, barrier, poll and synchronize;
DistributedOptimizer; broadcast_parameters, broadcast_optimizer_state, broadcast_object and allgather_object;
process sets; Compression; SyncBatchNorm; timelines; and elastic trainings: dlaunch.horovod.elastic.

dlaunch.horovod.tensorflow, dlaunch.horovod.keras and dlaunch.horovod.tensorflow.keras have what Horovod's modules of
these names have for TensorFlow 2: the collectives, eagerly and in a tf.function, DistributedGradientTape,
DistributedOptimizer for Keras 3 and tf_keras, broadcast_variables, callbacks, and elastic trainings.

How it works: ranks submit collectives by name, in any order, from any thread. Rank 0 collects the names, and tells all
ranks which collectives are ready. A thread on each rank runs them, in one order, with libdlring. Small ones that are
ready together run as one.

Errors: a collective whose ranks disagree on shape, type, op or root raises HorovodInternalError on all of them, which
names the tensor and the ranks; Horovod goes on after it. After the loss of a rank, or after a rank has shut Horovod
down, all pending and later collectives raise HorovodInternalError; its __cause__ is dlaunch's own error, such as
dlaunch.PeerLost. Wrong arguments are ValueErrors. If some rank does not submit a tensor, rank 0 names the tensor on
stderr after HOROVOD_STALL_CHECK_TIME_SECONDS (60), and all ranks end after HOROVOD_STALL_SHUTDOWN_TIME_SECONDS (never).

Environment: HOROVOD_FUSION_THRESHOLD (bytes, 128 MiB), HOROVOD_TIMELINE (a file, or DYNAMIC: start_timeline() names
one), HOROVOD_TIMELINE_MARK_CYCLES, HOROVOD_STALL_CHECK_TIME_SECONDS, HOROVOD_STALL_SHUTDOWN_TIME_SECONDS and
HOROVOD_STALL_CHECK_DISABLE. dlaunch's -x NAME=VALUE sets them.

What differs from Horovod:
- Tensors of GPUs go through the host's memory: a call waits for the GPU and copies. nccl_built(), mpi_built() and
  gloo_built() are false. For GPUs dlaunch.torch has DistributedDataParallel over NCCL.
- There is no cycle: a request goes to rank 0 at once. HOROVOD_CYCLE_TIME, the response cache, autotuning and
  hierarchical collectives have no counterpart, and their variables no effect.
- op=Adasum needs a number of ranks that is a power of 2, as Horovod's on CPUs. DistributedOptimizer(op=Adasum) reduces
  within step(), and not while backward() runs.
- Process sets may be added at any time, without HOROVOD_DYNAMIC_PROCESS_SETS.
- A rank that has joined takes part in all collectives: with zeros in reductions, without rows in allgather and
  alltoall. It may not be the root of a broadcast.
- init(comm=...) takes all ranks only.
- Handles are objects, and synchronize() may be called again.
- broadcast_optimizer_state() takes optimizers of every kind, without a first step.
- Only rank 0 writes a timeline.
- TensorFlow: tensors become NumPy's arrays, which XLA cannot compile. Keras 3 may use XLA, unless compile() gets
  jit_compile=False, or fit() a callback of this package, which turns it off. A tape or an optimizer reduces all its
  gradients in one collective, when all of them exist. backward_passes_per_step is only for PyTorch: Keras has
  gradient_accumulation_steps. Callbacks do not change momentum. Programs of TensorFlow 1 (sessions, hooks, its
  optimizers), SyncBatchNormalization and load_model() are not supported.
- elastic.run() recovers only from lost workers, and not from other HorovodInternalErrors, which would recur.
"""

"""What PyTorch builds upon a back end, on "dlring": each part beside what must come out of it. 4 ranks."""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import dlaunch.torch


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def close(got, want):
    assert torch.allclose(got, want, atol=1e-5), f"rank {rank}: got {got}, want {want}"


def trained(model, inputs, make_optimizer):
    optimizer = make_optimizer(model.parameters())
    for x in inputs:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model


def inputs():
    """Of each step: of all ranks, and this rank's."""
    numbers = torch.Generator().manual_seed(5)
    whole = [torch.randn(size * 2, 8, generator=numbers) for _ in range(3)]
    return whole, [x[rank * 2:rank * 2 + 2] for x in whole]


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def sharded():
    whole, own = inputs()
    alone = list(trained(net(), whole, adam).parameters())
    model = net()
    fully_shard(model, mesh=mesh)
    for got, want in zip(trained(model, own, adam).parameters(), alone):
        close(got.full_tensor(), want)
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    trained(model, own, adam)
    with FullyShardedDataParallel.summon_full_params(model):
        for got, want in zip(model.parameters(), alone):
            close(got.reshape(-1), want.reshape(-1))
    zero = lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=0.01)
    for got, want in zip(trained(DistributedDataParallel(net()), own, zero).parameters(), alone):
        close(got, want)


def hooked():
    whole, own = inputs()
    alone = list(trained(net(), whole, adam).parameters())
    for hook in default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook, default_hooks.allreduce_hook:
        model = DistributedDataParallel(net())
        model.register_comm_hook(None, hook)
        for got, want in zip(trained(model, own, adam).parameters(), alone):
            assert torch.allclose(got, want, atol=0.05)


def tensors():
    x = torch.arange(16.0).reshape(8, 2)
    part = distribute_tensor(x, mesh, [Shard(0)])
    assert part.to_local().shape == (2, 2)
    close(part.redistribute(placements=[Replicate()]).to_local(), x)
    assert part.sum().full_tensor().item() == 120
    model, alone = net(), net()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    close(model(torch.ones(2, 8)), alone(torch.ones(2, 8)))


def pipelined():
    torch.manual_seed(0)
    layers = [nn.Linear(8, 8) for _ in range(size)]
    stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
    schedule, x = ScheduleGPipe(stage, n_microbatches=4), torch.ones(8, 8)
    out = schedule.step(x) if rank == 0 else schedule.step()
    if rank == size - 1:
        close(out, nn.Sequential(*layers)(x))


def functions():
    close(functional.all_reduce(torch.ones(3), "sum", mesh), torch.full((3,), 4.0))
    close(functional.all_gather_tensor(torch.full((2,), float(rank)), 0, mesh), torch.arange(4.0).repeat_interleave(2))
    close(functional.reduce_scatter_tensor(torch.ones(size), "sum", 0, mesh), torch.tensor([4.0]))
    compiled = torch.compile(lambda x: functional.all_reduce(x * 2, "sum", mesh) + 1, backend="aot_eager")
    close(compiled(torch.ones(3)), torch.full((3,), 9.0))


def checkpointed():
    model = net()
    fully_shard(model, mesh=mesh)
    folder = [tempfile.mkdtemp(dir=".") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    wanted = [parameter.full_tensor().clone() for parameter in model.parameters()]
    checkpoint.save(model.state_dict(), checkpoint_id=folder[0] + "/now")
    checkpoint.async_save(model.state_dict(), checkpoint_id=folder[0] + "/later", process_group=dist.new_group()).result()
    for which in "now", "later":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        state = model.state_dict()
        checkpoint.load(state, checkpoint_id=f"{folder[0]}/{which}")
        model.load_state_dict(state)
        for got, want in zip(model.parameters(), wanted):
            close(got.full_tensor(), want)


def groups():
    for group in dist.new_subgroups(2)[0], init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")).get_group("b"):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=group)
        close(x, torch.tensor([rank // 2 * 4 + 1.0]))


dist.init_process_group("dlring")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 4
mesh = init_device_mesh("cpu", (size,))
for part in sharded, hooked, tensors, pipelined, functions, checkpointed, groups:
    part()
    dist.barrier()
    sys.stdout.write(f"rank {rank}: {part.__name__} is right\n")
    sys.stdout.flush()
dist.destroy_process_group()

"""A folder that torch.distributed.checkpoint has written without dlaunch becomes the state, and back again; HSDP takes
over what FSDP2 has committed; each rank's random numbers go with a folder. usage: pytorch_fsdp_folders.py FOLDER: the
folder's part "made" is made without dlaunch, by one process, as WORLD_SIZE is not set."""
import os
import random
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

folder = sys.argv[1]


def made():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(4, 5)).square().sum().backward()
    optimizer.step()


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def content(model, optimizer):
    state = get_state_dict(model, optimizer)
    return {**{key: whole(value) for key, value in state[0].items()},
            **{f"{key}.{what}": whole(value) for key, kept in state[1]["state"].items()
               for what, value in kept.items()}}


def same(one, other):
    assert one.keys() == other.keys(), (one.keys(), other.keys())
    for key, value in one.items():
        assert torch.equal(value, other[key]), f"{key} differs"


if "RANK" not in os.environ:
    model = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer)
    state = get_state_dict(model, optimizer)
    checkpoint.save({"model": state[0], "optimizer": state[1], "steps": 17}, checkpoint_id=f"{folder}/made")
    torch.save(content(model, optimizer), f"{folder}/made.pt")
    sys.exit()

from dlaunch.torch import elastic  # noqa: E402

state = elastic.TorchState(shard_replicas=1, steps=0, loader=elastic.DataLoader(list(range(8)), 4))


def sharded(mesh):
    model = made()
    for part in model[0], model[2], model:
        fully_shard(part, mesh=mesh)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    state.sharded(model=model, optimizer=optimizer)
    return model, optimizer


@elastic.run
def train(state):
    rank, size = dist.get_rank(), dist.get_world_size()
    model, optimizer = sharded(init_device_mesh("cpu", (size,)))
    state.load(f"{folder}/made")
    assert state.steps == 17 and optimizer.param_groups[0]["lr"] == 0.01, (state.steps, optimizer.param_groups)
    expected = torch.load(f"{folder}/made.pt")
    same(content(model, optimizer), expected)
    # Another cut of the same ranks gets what was committed.
    state.commit()
    copies = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copies", "parts"))  # HSDP
    same(content(*sharded(copies)), expected)
    model, optimizer = state.model, state.optimizer
    step(model, optimizer)
    expected = content(model, optimizer)
    state.commit()
    step(model, optimizer)
    state.restore()
    same(content(model, optimizer), expected)
    # Out and in again, with each rank's random numbers and a place in the data.
    random.seed(rank), torch.manual_seed(rank)
    state.loader.order.position, state.steps = 4, 18
    state.save(f"{folder}/saved")
    drawn = random.random(), torch.rand(2)
    step(model, optimizer)
    state.loader.order.position, state.steps = 0, 0
    state.load(f"{folder}/saved")
    same(content(model, optimizer), expected)
    assert (state.loader.position, state.steps) == (4, 18), (state.loader.position, state.steps)
    assert random.random() == drawn[0] and torch.equal(torch.rand(2), drawn[1])
    print("folders are right", flush=True)


train(state)

"""Local training with PyTorch and an outer optimizer; prints a hash of the weights. usage: outer_torch.py KIND FROM TO
FOLDER: goes on from the files of step FROM in the folder (0: begins), up to step TO, and leaves files there."""
import hashlib
import sys

import torch
import torch.distributed as dist

import dlaunch
import dlaunch.torch

kind, begin, end, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if kind == "group":  # by its communicator, beside its calls
    dist.init_process_group("dlring")
    comm, rank = None, dist.get_rank()
else:
    comm = dlaunch.init()
    rank = comm.rank
torch.manual_seed(rank)  # DiLoCo copies rank 0's
model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1))
if kind == "bfloat16":
    model = model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
if kind == "local":
    outer = dlaunch.torch.LocalSGD(model, inner_steps=3, communicator=comm, codec="bf16")
else:
    outer = dlaunch.torch.DiLoCo(model, inner_steps=6, communicator=comm, codec="int4", fragments=2, delay=2, mixing=0.5)
try:
    dlaunch.torch.DiLoCo([torch.zeros(1, dtype=torch.float64)], communicator=comm)
    raise AssertionError("float64 was taken")
except TypeError as error:
    assert "must have float32, bfloat16 or float16" in str(error)
parts = {"model": model, "optimizer": optimizer, "outer": outer}


def file(step):
    return f"{folder}/{kind}-{step}-{rank}.pt"


def weights():
    return torch.cat([parameter.detach().float().flatten() for parameter in model.parameters()])


def same_on_all_ranks():
    own = weights()
    if comm is not None:
        all_of = comm.all_gather(own)
    else:
        all_of = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(all_of, own)
    return all(torch.equal(one, all_of[0]) for one in all_of)


assert same_on_all_ranks(), "the ranks begin with different parameters"
if begin > 0:
    for name, state in torch.load(file(begin)).items():
        parts[name].load_state_dict(state)
for step in range(begin + 1, end + 1):
    random = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, 20, generator=random).to(model[0].weight.dtype)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    if kind == "group":
        assert not same_on_all_ranks()
    outer.step()
    assert outer.steps == step
assert same_on_all_ranks() == (kind == "local" and end % 3 == 0), "who shares parameters in which step"
torch.save({name: part.state_dict() for name, part in parts.items()}, file(end))
own = weights()
outer.finish()
assert same_on_all_ranks(), "the ranks end with different parameters"
print("weights", hashlib.sha256(own.numpy().tobytes() + weights().numpy().tobytes()).hexdigest())

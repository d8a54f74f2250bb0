"""Elastic local training with PyTorch; prints a hash of the weights. usage: outer_torch_elastic.py [lose|early]
lose: rank 1 dies after step 12 of the first round, with an average in the background. early: before the first commit."""
import hashlib
import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist

import dlaunch.elastic
import dlaunch.torch
from dlaunch.torch import elastic

how = sys.argv[1] if len(sys.argv) > 1 else ""
torch.manual_seed(7 if os.environ.get("RANK") == "0" else os.getpid())  # all ranks begin with rank 0's
model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30), torch.nn.Linear(30, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
outer = dlaunch.torch.DiLoCo(model, inner_steps=6, codec="int4", fragments=2, delay=2, mixing=0.5, elastic=True)
state = elastic.TorchState(model=model, optimizer=optimizer, outer=outer, begun=False)


def refused(says, call, *args, **words):
    try:
        call(*args, **words)
    except (RuntimeError, TypeError) as error:
        assert says in str(error), error
        return
    raise AssertionError(f"not refused: {says}")


refused("use snapshots()", state.checkpoints, "never", 1)
refused("begins with its run()", outer.step)
if os.environ.get("RANK") == "0":
    alone = dlaunch.init(f"file://{os.path.abspath(tempfile.mkdtemp(dir='.'))}", rank=0, size=1)
    local = dlaunch.torch.LocalSGD(model, inner_steps=1, communicator=alone)
    refused("with elastic=True", elastic.TorchState, model=model, outer=local)
    refused("with elastic=True", elastic.TorchState, model=model, outer=dlaunch.Outer(alone, []))
    refused("with elastic=True", dlaunch.elastic.State, alone, outer=local)


def die_in(step):
    if dist.get_rank() == 1 and outer.steps == step and not os.path.exists("died"):
        open("died", "w").close()
        if how == "lose":
            assert outer.in_flight
            print("dies with an average in the background", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def gathered(tensor):
    all_of = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of, tensor)
    return all_of


def weights():
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@elastic.run
def train(state):
    if outer.steps == 0:
        assert all(torch.equal(one, weights()) for one in gathered(weights())), "the ranks begin differently"
    while outer.steps < 20:
        random = torch.Generator().manual_seed(1000 * outer.steps + dist.get_rank())
        x = torch.randn(16, 20, generator=random)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        outer.step()
        if how:
            die_in({"lose": 12, "early": 1}[how])
        state.commit()
    own = torch.cat([weights(), model[1].running_mean])
    assert not torch.equal(*gathered(own)[:2])
    outer.finish()
    assert all(torch.equal(one, weights()) for one in gathered(weights())), "the ranks end differently"
    print("weights", hashlib.sha256(repr([own.tolist(), weights().tolist()]).encode()).hexdigest(), flush=True)
    state.commit()


train(state)

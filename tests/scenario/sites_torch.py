"""LocalSGD with PyTorch over the sites of dlaunch --sites, which it finds by itself; prints the weights."""
import hashlib

import torch

import dlaunch
import dlaunch.torch

comm = dlaunch.init()
model = torch.nn.Linear(20, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outer = dlaunch.torch.LocalSGD(model, inner_steps=4)
while outer.steps < 40:
    optimizer.zero_grad()
    model(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()
    outer.step()
outer.finish()
assert outer.sites.info["contributed"] == ["lake", "sea"], outer.sites.info
if comm.rank == 0:
    print(f"weights {hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()}", flush=True)

"""The effect of DistributedDataParallel's bucket size, with PyTorch.

    $ dlaunch --nproc 2 buckets.py buckets.csv
    [0] 12 layers, 3.2 MB of gradients, 2 ranks
    [0] bucket MB  ms a step
    [0]      0.01          …
    [0]      0.25          …
    [0]         1          …
    [0]        25          …
    [0] with each bucket size the gradients are the same
    $ python3 plot.py buckets.csv buckets.svg
    4 points in buckets.svg

backward() finishes gradients one by one, from the last layer to the first. DDP sums them in buckets: small ones start
early and pay the cost of a call each, and a single large one starts when there is nothing left to compute.
buckets.cc shows the same without PyTorch. Time differs from run to run, most of all on a machine that is busy.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlaunch.torch

LAYERS, WIDTH, BATCH, ROUNDS = 12, 256, 64, 7


def model():
    torch.manual_seed(1)  # the same weights on every rank and for every bucket size
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def step(net, inputs):
    """Milliseconds of one forward and one backward pass."""
    net.zero_grad()
    dist.barrier()
    begin = time.perf_counter()
    net(inputs).square().mean().backward()
    return (time.perf_counter() - begin) * 1e3


dist.init_process_group("dlring")
first = dist.get_rank() == 0
inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
megabytes = sum(p.numel() for p in model().parameters()) * 4 / 1e6
if first:
    print(f"{LAYERS} layers, {megabytes:.1f} MB of gradients, {dist.get_world_size()} ranks")
    print(f"{'bucket MB':>9} {'ms a step':>10}")
results, gradients = [], []
for size in (0.01, 0.25, 1, 25):
    net = DistributedDataParallel(model(), bucket_cap_mb=size)
    best = min(step(net, inputs) for _ in range(ROUNDS))
    results.append((size, best))
    gradients.append([p.grad for p in net.parameters()])
    if first:
        print(f"{size:9g} {best:10.2f}")
if first:
    same = all(torch.allclose(a, b, atol=1e-7) for other in gradients for a, b in zip(gradients[0], other))
    print("with each bucket size the gradients are the same" if same else "the gradients differ")
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            file.write("bucket MB,ms a step\n" + "".join(f"{size},{best:.3f}\n" for size, best in results))
dist.destroy_process_group()

"""DistributedDataParallel with gradients in few bits: equal weights on all ranks, close to those of exact gradients.
usage: pytorch_compression.py gloo|dlring CODEC... [die]. A CODEC may also be "power_sgd", or "exact": without the hook.
Prints the loss and a hash of the weights of each. die: rank 1 dies in the fifth step."""
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlaunch
import dlaunch.torch

if "die" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's SIGTERM may come before the error
backend, *codecs = [word for word in sys.argv[1:] if word != "die"]
dist.init_process_group(backend)
comm = dlaunch.init() if backend == "gloo" else None
test = torch.randn(512, 20, generator=torch.Generator().manual_seed(0))


def loss_of(net, x):
    return (net(x) - x.sum(1, keepdim=True)).square().mean()


def train(codec):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 200), torch.nn.Tanh(), torch.nn.Linear(200, 1))
    net = DistributedDataParallel(model, bucket_cap_mb=0.01)  # several buckets
    if codec == "power_sgd":
        how = dlaunch.torch.PowerSGD(model, matrix_approximation_rank=4, start_powerSGD_iter=20, communicator=comm)
        net.register_comm_hook(how, dlaunch.torch.compressed)
    elif codec != "exact":
        net.register_comm_hook(dlaunch.torch.Compression(codec, communicator=comm), dlaunch.torch.compressed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(150):
        x = torch.randn(32, 20, generator=torch.Generator().manual_seed(1000 * step + dist.get_rank()))
        optimizer.zero_grad()
        if "die" in sys.argv and step == 5 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss_of(net, x).backward()
        except Exception as error:
            sys.exit(f"backward ends with {type(error).__name__}: {error}")
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    all_of = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of, weights)
    assert all(torch.equal(one, weights) for one in all_of), "the ranks have different weights"
    with torch.no_grad():
        print(f"{codec}: loss {float(loss_of(net, test)):.3f} weights {hashlib.sha256(weights.numpy().tobytes()).hexdigest()}")


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, x):
        return (self.weight * x).real.sum()


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"not refused: {words}")


def complex_parameters():
    """The hooks refuse them, and DistributedDataParallel alone averages their gradients, as the refusal says."""
    model, words = Complex(), "complex parameters"
    refused(TypeError, words, lambda: dlaunch.torch.Compression("int8", model))
    refused(TypeError, words, lambda: dlaunch.torch.PowerSGD(model))
    refused(TypeError, words, lambda: dlaunch.torch.Partial(model, may_miss=0))
    x = torch.full((3,), complex(1 + dist.get_rank(), dist.get_rank()))
    net = DistributedDataParallel(model)
    net(x).backward()
    middle = (dist.get_world_size() - 1) / 2
    assert torch.allclose(model.weight.grad, torch.full((3,), complex(1 + middle, -middle))), model.weight.grad
    net = DistributedDataParallel(model)
    net.register_comm_hook(dlaunch.torch.Compression("int8"), dlaunch.torch.compressed)
    refused(Exception, words, lambda: net(x).backward())


refused(ValueError, "codec is 'int3'", lambda: dlaunch.torch.Compression("int3", communicator=comm))
if backend == "dlring" and "die" not in sys.argv:
    complex_parameters()
for codec in codecs:
    train(codec)

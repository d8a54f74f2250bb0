"""DiLoCo and LocalSGD: the ranks train on their own, and average seldom and in few bits, for a network that is slow.

    $ dlaunch --nproc 2 diloco.py
    [0] an average in each step        accuracy 0.8…, each rank sent about 49 MB
    [0] LocalSGD, after 10 steps       accuracy 0.8…, each rank sent about 4.9 MB
    [0] DiLoCo, after 10 steps         accuracy 0.8…, each rank sent about 4.9 MB
    [0] streaming DiLoCo in 4 bits     accuracy 0.8…, each rank sent about 0.65 MB

Each rank trains with its own part of Fashion-MNIST and with its own optimizer, the inner one. Then the ranks average how
far their parameters have moved, and an outer optimizer applies the average. Streaming DiLoCo averages two halves of the
parameters in turn, in the background, while the inner steps go on.
"""

import argparse
import pathlib
import sys

import torch
from torch.nn.functional import cross_entropy

import dlaunch.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import fashion_mnist

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--steps", type=int, default=120)
options = parser.parse_args()
comm = dlaunch.init()
pixels, labels = fashion_mnist.load(options.data, "train")
test_pixels, test_labels = fashion_mnist.load(options.data, "t10k")
mine = slice(comm.rank, None, comm.size)  # this rank's part of the data
BITS = {"none": 32, "int4": 4.25}


def scaled(images):
    return (images - 73.0) / 90.0


def train(name, **averaging):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    outer = dlaunch.torch.DiLoCo(model, communicator=comm, **averaging)
    order = torch.randperm(len(labels[mine]))
    for step in range(options.steps):
        batch = order[64 * step % (len(order) - 64):][:64]
        optimizer.zero_grad()
        cross_entropy(model(scaled(pixels[mine][batch])), labels[mine][batch].long()).backward()
        optimizer.step()
        outer.step()
    outer.finish()
    with torch.no_grad():
        right = (model(scaled(test_pixels)).argmax(1) == test_labels).float().mean()
    floats = sum(parameter.numel() for parameter in model.parameters())
    # A rank sends its values of the other ranks' slices, and to each of them the average of its own.
    sent = 2 * floats * (comm.size - 1) / comm.size * BITS[averaging.get("codec", "none")] / 8
    sent *= options.steps / averaging["inner_steps"]
    if comm.rank == 0:
        print(f"{name:30} accuracy {right:.4f}, each rank sent about {sent / 1e6:.2g} MB", flush=True)


train("an average in each step", inner_steps=1, learning_rate=1, momentum=0)
train("LocalSGD, after 10 steps", inner_steps=10, learning_rate=1, momentum=0)
train("DiLoCo, after 10 steps", inner_steps=10)
train("streaming DiLoCo in 4 bits", inner_steps=10, codec="int4", fragments=2, delay=2, mixing=0.5)

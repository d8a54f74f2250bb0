"""Data-parallel training of a small network on Fashion-MNIST with PyTorch, which continues when workers die.

    $ dlaunch --nproc 2 train_fashion_mnist.py --epochs 1
    [0] epoch 1  loss 0.…  accuracy 0.8…

With workers that die:

    dlaunch --nproc 4 --spares 1 --max-restarts 100 --chaos kill=5s train_fashion_mnist.py

dlaunch.torch.elastic has the manual. From a build folder: PYTHONPATH=build/python.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import fashion_mnist
from dlaunch.torch import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
parser.add_argument("--rate", type=float, default=0.002)
parser.add_argument("--snapshots", help="a folder from which a restarted job continues")
options = parser.parse_args()


class Pictures(torch.utils.data.TensorDataset):
    def __getitem__(self, index):
        pixels, label = super().__getitem__(index)
        return (pixels - 73.0) / 90.0, int(label)


torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
loader = elastic.DataLoader(Pictures(*fashion_mnist.load(options.data, "train")), global_batch=options.batch, seed=1)
state = elastic.TorchState(model=model, optimizer=optimizer, loader=loader, done=0, loss=0.0)
if options.snapshots:
    state.snapshots(options.snapshots, every=100)


def accuracy():
    pixels, labels = fashion_mnist.load(options.data, "t10k")
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    with torch.no_grad():
        right = (model((pixels[mine] - 73.0) / 90.0).argmax(1) == labels[mine]).sum()
    dist.all_reduce(right)
    return right.item() / len(labels)


@elastic.run
def train(state):
    net = DistributedDataParallel(model)
    while state.done < options.epochs:
        if loader.epoch == state.done:  # otherwise a loss has interrupted the test
            for pixels, labels in loader:
                optimizer.zero_grad()
                loss = cross_entropy(net(pixels), labels)
                loss.backward()
                optimizer.step()
                state.loss = 0.98 * state.loss + 0.02 * loss.item() if state.loss else loss.item()
                state.commit()
        right = accuracy()
        state.done += 1
        if dist.get_rank() == 0:
            print(f"epoch {state.done}  loss {state.loss:.4f}  accuracy {right:.4f}", flush=True)
        state.commit()


train(state)

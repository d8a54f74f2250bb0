"""Sharded training (FSDP2) of a small network on Fashion-MNIST with PyTorch, which continues when workers die.

  dlaunch --nproc 4 examples/train_fashion_mnist_fsdp.py
  dlaunch --nproc 4 --max-restarts 100 --chaos kill=5s examples/train_fashion_mnist_fsdp.py --checkpoints folder

Each rank has a part of every parameter, and of its state in the optimizer. dlaunch.torch.elastic has the manual.
From a build folder: PYTHONPATH=build/python. It needs PyTorch 2.6 or newer.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

import fashion_mnist
from dlaunch.torch import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--samples", type=int, default=60000, help="so many of the training set")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
parser.add_argument("--checkpoints", help="a folder of torch.distributed.checkpoint, from which a restarted job continues")
parser.add_argument("--losses", help="a file: rank 0 writes the loss of each step there at the end")
options = parser.parse_args()

pixels, labels = (part[:options.samples] for part in fashion_mnist.load(options.data, "train"))
dataset = torch.utils.data.TensorDataset((pixels - 73.0) / 90.0, labels.long())
loader = elastic.DataLoader(dataset, global_batch=options.batch, seed=1)
# Parts that are equal on all ranks exist from the start. This many other ranks keep a copy of each rank's part.
state = elastic.TorchState(loader=loader, losses=[], room=1 << 20, shard_replicas=1)
if options.checkpoints:
    state.checkpoints(options.checkpoints, every=50)


@elastic.run
def train(state):
    # Each round makes the model for its ranks, which may be more or fewer than before.
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.Tanh(), torch.nn.Linear(128, 10))
    for layer in model[0], model[2], model:
        fully_shard(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    # From here on it is part of the state, with the values of the last commit.
    state.sharded(model=model, optimizer=optimizer)
    while loader.epoch < options.epochs:
        for pixels, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), labels)
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss)
            state.losses = state.losses + [loss.item() / dist.get_world_size()]
            state.commit()
        if dist.get_rank() == 0:
            print(f"epoch {loader.epoch}  loss {state.losses[-1]:.4f}", flush=True)
    if options.checkpoints:
        state.save(options.checkpoints + "/end")
    if options.losses and dist.get_rank() == 0:
        with open(options.losses, "w") as file:
            file.writelines(f"{loss!r}\n" for loss in state.losses)


train(state)

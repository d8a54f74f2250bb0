"""PyTorch's RPC: a recurrent network. Its embedding and output layer are on one rank, and its middle is on another.

    $ dlaunch --nproc 2 rpc_rnn.py
    [0] step  0  loss …
    [0] step 10  loss …
    [0] step 20  loss …
    [0] the network knows the sequence: yes

Rank 1 is the parameter server. Rank 0 trains: it makes the two layers on rank 1 (rpc.remote returns an RRef, a
reference to an object of another rank) and calls them there. Distributed autograd records the calls, so that one
backward() goes through both ranks, and the DistributedOptimizer takes a step on the rank that has the parameter.

dlaunch starts the ranks and sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. RPC needs nothing else. It sends data
through its own transport, TensorPipe. parameter_server.py shows the idea without PyTorch.
"""

import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer

SYMBOLS, WIDTH, STEPS = 6, 16, 30
SEQUENCE = torch.tensor([0, 1, 2, 3, 4, 5] * 4)  # each symbol says which comes next


def forward_on_owner(layer, x):
    return layer.local_value()(x)


def parameters_on_owner(layer):
    return [rpc.RRef(parameter) for parameter in layer.local_value().parameters()]


class Network(torch.nn.Module):
    """The LSTM is here; the embedding in front of it and the layer behind it are on the server."""

    def __init__(self, server):
        super().__init__()
        self.embedding = rpc.remote(server, torch.nn.Embedding, args=(SYMBOLS, WIDTH))
        self.lstm = torch.nn.LSTM(WIDTH, WIDTH)
        self.decoder = rpc.remote(server, torch.nn.Linear, args=(WIDTH, SYMBOLS))

    def forward(self, symbols):
        embedded = rpc.rpc_sync(self.embedding.owner(), forward_on_owner, args=(self.embedding, symbols))
        hidden, _ = self.lstm(embedded)
        return rpc.rpc_sync(self.decoder.owner(), forward_on_owner, args=(self.decoder, hidden))

    def references(self):
        found = [rpc.RRef(parameter) for parameter in self.lstm.parameters()]
        for layer in (self.embedding, self.decoder):
            found += rpc.rpc_sync(layer.owner(), parameters_on_owner, args=(layer,))
        return found


def train():
    network = Network("server")
    optimizer = DistributedOptimizer(torch.optim.Adam, network.references(), lr=0.1)
    inputs, targets = SEQUENCE[:-1], SEQUENCE[1:]
    for step in range(STEPS):
        with dist_autograd.context() as context:  # gradients belong to a context, not to the parameters
            loss = torch.nn.functional.cross_entropy(network(inputs), targets)
            dist_autograd.backward(context, [loss])
            optimizer.step(context)
        if step % 10 == 0:
            print(f"step {step:2}  loss {loss.item():.3f}")
    knows = torch.equal(network(inputs).argmax(1), targets)
    print("the network knows the sequence:", "yes" if knows else "no")


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(1)
rpc.init_rpc("trainer" if rank == 0 else "server", rank=rank, world_size=size)
if rank == 0:
    train()
rpc.shutdown()  # waits until all ranks are done; until then the server answers

"""An asynchronous parameter server with bounded staleness: no worker is more than a few steps ahead of the slowest.

    $ dlaunch --nproc 5 bounded_staleness.py --servers 2 --staleness 3
    [0] steps of rank 2: …, rank 3: …, rank 4: …
    [0] a worker was up to 3 steps ahead of the slowest, accuracy 0.8…
    $ dlaunch --nproc 4 --min-nproc 3 bounded_staleness.py --lose
    [0] steps of rank 1: …, rank 2: …
    [0] a worker was up to 3 steps ahead of the slowest, accuracy 0.8…

The first ranks are servers, and each owns a slice of the parameters. The others are workers: each sends its gradient to
all servers, which apply it at once, and gets the newest parameters. A server holds back the answer to a worker that is
too many steps ahead, until the slowest worker has made another step. So the parameters that a worker gets lack at most
the last few steps of any other worker. (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
Parameter Server", NIPS 2013.) Here the last worker needs three times as long as the others.

A worker that dies is dropped: the other ranks meet again, and the clock goes on without it. A gradient that was on its
way then may be lost. A new process can take its place (dlaunch --max-restarts 1). The parameters end with their server.
"""

import argparse
import os
import pathlib
import signal
import sys

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import dlaunch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import fashion_mnist

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--servers", type=int, default=1)
parser.add_argument("--staleness", type=int, default=3)
parser.add_argument("--gradients", type=int, default=900)
parser.add_argument("--lose", action="store_true", help="the last worker dies in its tenth step")
options = parser.parse_args()
RATE, BATCH, WORKER = 0.2, 64, -1
DONE, NEW = -1, -2  # clocks of a worker that has ended, and of one that has yet to take that of the slowest

comm = dlaunch.init(elastic=True)
if not 0 < options.servers < comm.size:
    sys.exit(f"--servers is {options.servers}, and must be at least 1 and below the number of ranks, which is "
             f"{comm.size}: a worker needs a rank, too; --nproc starts more ranks")
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()
slices = np.array_split(np.arange(len(weights)), options.servers)
# In a later round a new process is a worker.
role = comm.rank if comm.round == 1 and comm.rank < options.servers else WORKER


def batch(images, labels, where):
    return cross_entropy(model((images[where] - 73.0) / 90.0), labels[where].long())


def load(values):
    torch.nn.utils.vector_to_parameters(torch.from_numpy(values), model.parameters())


class Server:
    clock = steps = 0

    def __init__(self):
        self.ahead, self.gradients = 0, 0  # the most steps between two workers, and the gradients so far
        self.own = weights[slices[role]]

    def serve(self, clocks):
        """clocks: the steps of each worker so far, or DONE, by rank."""
        clocks = {rank: clock for rank, clock in clocks.items() if clock != DONE}
        waiting = set(clocks)
        message = np.empty(1 + len(self.own), np.float32)
        while clocks:
            for rank in sorted(waiting):
                if clocks[rank] <= min(clocks.values()) + options.staleness:
                    self.answer(rank, clocks, waiting)
            if not clocks:
                break
            rank = comm.recv_any(message)
            if message[0] == DONE:
                del clocks[rank]
                continue
            clocks[rank] = int(message[0])
            self.own -= RATE * message[1:]
            self.gradients += 1
            waiting.add(rank)

    def answer(self, rank, clocks, waiting):
        self.ahead = max(self.ahead, clocks[rank] - min(clocks.values()))
        over = role == 0 and self.gradients >= options.gradients  # the first server decides
        comm.send(np.concatenate(([DONE if over else clocks[rank]], self.own)).astype(np.float32), rank)
        waiting.discard(rank)
        if over:
            del clocks[rank]


class Worker:
    def __init__(self):
        self.images, self.labels = fashion_mnist.load(options.data, "train")
        self.random = torch.Generator().manual_seed(comm.rank)
        self.clock = NEW
        self.steps = 0

    def work(self, servers):
        while self.clock != DONE and self.pull(servers):
            gradient = self.gradient()
            self.clock, self.steps = self.clock + 1, self.steps + 1
            for part, server in zip(slices, servers):
                comm.send(np.concatenate(([self.clock], gradient[part])).astype(np.float32), server)

    def pull(self, servers):
        for part, server in zip(slices, servers):
            message = np.empty(1 + len(part), np.float32)
            comm.recv(message, server)
            weights[part] = message[1:]
            if message[0] == DONE:
                self.clock = DONE
        if self.clock == DONE:
            for part, server in zip(slices[1:], servers[1:]):
                comm.send(np.full(1 + len(part), DONE, np.float32), server)
            return False
        load(weights)
        return True

    def gradient(self):
        last = comm.rank == comm.size - 1
        if options.lose and last and comm.round == 1 and self.clock == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(3 if last else 1):  # slow
            where = torch.randint(len(self.labels), (BATCH,), generator=self.random)
            model.zero_grad()
            batch(self.images, self.labels, where).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).numpy()


def one_round(me):
    """Until all workers are done: a worker that is, takes part in the next round, too."""
    known = comm.all_gather(np.array([role, me.clock]))
    servers = [int(np.flatnonzero(known[:, 0] == server)[0]) if server in known[:, 0] else None
               for server in range(options.servers)]
    if None in servers:
        sys.exit("a server is lost, and with it its part of the parameters")
    workers = {rank: int(clock) for rank, (role_of, clock) in enumerate(known) if role_of == WORKER}
    slowest = min((clock for clock in workers.values() if clock >= 0), default=0)
    workers = {rank: slowest if clock == NEW else clock for rank, clock in workers.items()}
    if role == WORKER:
        me.clock = workers[comm.rank]
        me.work(servers)
    else:
        me.serve(workers)
    for server, part in zip(servers, slices):
        weights[part] = comm.broadcast(me.own if comm.rank == server else weights[part], server)
    steps = comm.all_gather(np.array([me.steps]))[:, 0]
    return {rank: steps[rank] for rank in workers}


me = Worker() if role == WORKER else Server()
while True:
    try:
        steps_of = one_round(me)
        break
    except dlaunch.PeerLost:
        comm.rejoin()
if role == 0:
    load(weights)
    images, labels = fashion_mnist.load(options.data, "t10k")
    with torch.no_grad():
        right = (model((images - 73.0) / 90.0).argmax(1) == labels).float().mean()
    print("steps of", ", ".join(f"rank {rank}: {steps}" for rank, steps in steps_of.items()))
    print(f"a worker was up to {me.ahead} steps ahead of the slowest, accuracy {right:.4f}")

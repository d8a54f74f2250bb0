"""One worker of a training over sites, for script/bench-sites: a convolutional network on Fashion-MNIST, or a language
model of characters on a text. It writes its figures as JSON.

  --averaging sync     an all_reduce of float32 gradients in each step, over the ranks of one job
  --averaging sites    dlaunch.torch.DiLoCo over the sites of dlaunch --sites
  --averaging torchft  torchft.local_sgd.DiLoCo over Gloo, for comparison
"""

import argparse
import json
import math
import os
import pathlib
import sys
import time

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import fashion_mnist

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["cnn", "text"], required=True)
parser.add_argument("--averaging", choices=["sync", "sites", "torchft"], required=True)
parser.add_argument("--site", type=int, required=True)
parser.add_argument("--sites", type=int, default=4)
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--inner-steps", type=int, default=160)
parser.add_argument("--fragments", type=int, default=1)
parser.add_argument("--delay", type=int, default=0)
parser.add_argument("--mixing", type=float, help="default: 0.5, with text 0.1")
parser.add_argument("--outer-learning-rate", type=float, help="default: 1, with text 0.7")
parser.add_argument("--outer-momentum", type=float, help="default: 0.3, with text 0.9")
parser.add_argument("--codec", default="int4")
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--text", help="a file of text")
parser.add_argument("--report", required=True)
parser.add_argument("--stop-after", type=int, help="ends after so many steps; only with sync")
parser.add_argument("--alive", help="a file that gets a line with the time and the number of each 10th step")
options = parser.parse_args()
torch.set_num_threads(1)


class Images:
    learning_rate = 0.002
    outer = {"outer_learning_rate": 1.0, "outer_momentum": 0.3, "mixing": 0.5}

    def __init__(self):
        self.pixels, self.labels = fashion_mnist.load(options.data, "train")
        self.test = fashion_mnist.load(options.data, "t10k")

    def model(self):
        nn = torch.nn
        return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10))

    def scaled(self, pixels):
        return ((pixels - 73.0) / 90.0).view(-1, 1, 28, 28)

    def batch(self):
        at = torch.randint(0, len(self.labels) // options.sites, (32,)) * options.sites + options.site
        return self.scaled(self.pixels[at]), self.labels[at].long()

    def tests(self):
        return self.scaled(self.test[0]), self.test[1].long()


class Text:
    learning_rate = 0.001
    outer = {"outer_learning_rate": 0.7, "outer_momentum": 0.9, "mixing": 0.1}
    context = 32

    def __init__(self):
        text = pathlib.Path(options.text).read_text().lower()
        self.kinds = sorted(set(text))
        number = {kind: at for at, kind in enumerate(self.kinds)}
        characters = torch.tensor([number[kind] for kind in text])
        self.train, self.test = characters[:-100000], characters[-100000:]

    def model(self):
        nn = torch.nn
        return nn.Sequential(nn.Embedding(len(self.kinds), 32), nn.Flatten(), nn.Linear(32 * self.context, 1024), nn.ReLU(),
                             nn.Dropout(0.25), nn.Linear(1024, 1024), nn.ReLU(), nn.Dropout(0.25),
                             nn.Linear(1024, len(self.kinds)))

    def windows(self, of, at):
        windows = of[at[:, None] + torch.arange(self.context + 1)]
        return windows[:, :-1], windows[:, -1]

    def batch(self):
        part = len(self.train) // options.sites
        at = torch.randint(0, part - self.context - 1, (64,))
        return self.windows(self.train, options.site * part + at)

    def tests(self):
        return self.windows(self.test, torch.arange(len(self.test) - self.context))


def bytes_sent():
    """By this host's network interface, headers included."""
    for line in open("/proc/net/dev"):
        name, _, counts = line.partition(":")
        if name.strip() == "eth0":
            return int(counts.split()[8])
    return 0


task = Images() if options.model == "cnn" else Text()
for name, value in task.outer.items():
    if getattr(options, name) is None:
        setattr(options, name, value)
torch.manual_seed(1)
model = task.model()
fused = {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}  # earlier: GPUs only
optimizer = torch.optim.Adam(model.parameters(), lr=task.learning_rate, **fused)


def inner_step(step, before_update=lambda: None):
    warm = min(1, (step + 1) / 50)
    optimizer.param_groups[0]["lr"] = task.learning_rate * warm * (0.525 + 0.475 * math.cos(math.pi * step / options.steps))
    torch.manual_seed(step * options.sites + options.site)  # of the batch and of dropout
    images, labels = task.batch()
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    before_update()
    begun = time.monotonic()
    optimizer.step()
    return time.monotonic() - begun


class Clock:
    """Books the time of each step as compute or as waiting, once the training has begun."""

    def __init__(self):
        self.compute = self.waiting = 0.0
        self.steps = 0
        self.longest = 0.0  # wait
        self.sent = bytes_sent()

    def step(self, computes, averages, number):
        begun = time.monotonic()
        computes()
        computed = time.monotonic()
        averages()
        waited = time.monotonic() - computed
        self.compute += computed - begun
        self.wait(waited)
        self.steps += 1
        if options.alive and number % 10 == 0:
            with open(options.alive, "a") as file:
                file.write(f"{time.time():.2f} {number}\n")

    def wait(self, seconds):
        self.waiting += seconds
        self.longest = max(self.longest, seconds)

    def move_to_waiting(self, seconds):
        self.compute -= seconds
        self.wait(seconds)


def train_sync():
    import dlaunch
    comm = dlaunch.init()
    parameters = list(model.parameters())

    def average():
        flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
        comm.all_reduce(flat.numpy(), "avg", out=flat.numpy())
        at = 0
        for parameter in parameters:
            parameter.grad.copy_(flat[at:at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    comm.barrier()
    clock = Clock()
    for step in range(options.stop_after or options.steps):
        waited = []

        def average_in_time():
            begun = time.monotonic()
            average()
            waited.append(time.monotonic() - begun)

        clock.step(lambda: inner_step(step, average_in_time), lambda: None, step + 1)
        clock.move_to_waiting(waited[0])
    clock.sent = bytes_sent() - clock.sent
    return clock, {}


def train_sites():
    import dlaunch.torch
    comm = dlaunch.init()
    outer = dlaunch.torch.DiLoCo(model, communicator=comm, inner_steps=options.inner_steps,
                                 learning_rate=options.outer_learning_rate, momentum=options.outer_momentum,
                                 codec=options.codec, fragments=options.fragments, delay=options.delay, mixing=options.mixing)
    inner_step(0)
    outer.step()  # waits until all sites are there
    clock = Clock()
    while outer.steps < options.steps:
        clock.step(lambda: inner_step(outer.steps), outer.step, outer.steps)
    outer.finish()
    clock.sent = bytes_sent() - clock.sent
    return clock, {name: outer.sites.info[name] for name in ("merges", "jumps", "carried")}


def train_torchft():
    from datetime import timedelta

    import torchft
    from torchft.local_sgd import DiLoCo

    logged = {"restored": 0}

    def load(state):
        logged["restored"] += 1
        model.load_state_dict(state["model"])
        model.to("cpu")
        outer.load_state_dict(state["outer"])

    def state():
        return {"model": model.state_dict(), "outer": outer.state_dict()}

    outer = torch.optim.SGD(model.parameters(), lr=options.outer_learning_rate, momentum=options.outer_momentum, nesterov=True)
    store = torch.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 1, True,
                                       wait_for_workers=False)
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=10)), min_replica_size=1,
                              use_async_quorum=False, timeout=timedelta(seconds=10), load_state_dict=load, state_dict=state,
                              replica_id=f"site{options.site}", rank=0, world_size=1)
    with DiLoCo(manager, [model], optimizer, outer, sync_every=options.inner_steps,
                fragment_sync_delay=options.delay, fragment_update_alpha=options.mixing) as diloco:
        clock = Clock()
        merges = options.steps // options.inner_steps
        while manager.current_step() < merges:
            step = manager.current_step() * options.inner_steps + diloco._local_step
            updates = []
            clock.step(lambda: updates.append(inner_step(step)), lambda: None, step + 1)
            if (step + 1) % options.inner_steps == 0:  # torchft averages in a hook of the optimizer
                clock.move_to_waiting(updates[0])
    clock.sent = bytes_sent() - clock.sent
    return clock, logged


train = {"sync": train_sync, "sites": train_sites, "torchft": train_torchft}[options.averaging]
begun = time.monotonic()
clock, more = train()
took = time.monotonic() - begun
model.eval()
with torch.no_grad():
    right = [model(images).argmax(1) == labels for images, labels in zip(*(half.split(2000) for half in task.tests()))]
    accuracy = torch.cat(right).float().mean().item()
report = {"site": options.site, "accuracy": accuracy, "steps": clock.steps, "seconds": took, "compute_s": clock.compute,
          "waiting_s": clock.waiting, "longest_wait_s": clock.longest, "bytes_sent": clock.sent,
          "parameters": sum(parameter.numel() for parameter in model.parameters()), **more}
pathlib.Path(options.report).write_text(json.dumps(report))
print(report, flush=True)

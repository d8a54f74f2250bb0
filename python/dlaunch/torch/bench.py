"""Compares the times of PyTorch programs on the back end "dlring" and on Gloo.

    dlaunch --nproc 4 -m dlaunch.torch.bench [call] [layer] [ddp] [--rounds 30]

call   all_reduce of 8 bytes: torch.distributed on dlring, on Gloo, and on PyTorch's own "fake" back end, which does
       nothing and so shows PyTorch's own share; beside the same call from C
layer  tensor-parallel inference: two all_reduces of 8, 16, 32 and 64 KiB in a layer, one after the other
ddp    a training step of DistributedDataParallel with 25 MB of parameters

The ways take turns within each round, so that all run under the same conditions. Each figure is the median over the
rounds, in microseconds a call (call), a layer (layer) and a step (ddp). The last column is the median over the rounds
of the ratio of dlring to Gloo. Needs PyTorch 2.4 or newer.
"""

import argparse
import array
import statistics
import time

import torch
import torch.distributed as dist

import dlaunch
import dlaunch.torch
from dlaunch import _core


def timed(call, times):
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times * 1e6


class Table:
    """Rounds of several ways, and a line with the results."""

    def __init__(self, group, rounds):
        self.group, self.rounds = group, rounds

    def row(self, name, ways):
        """ways: {name: function that returns microseconds}."""
        got = {way: [] for way in ways}
        for _ in range(self.rounds):
            for way, run in ways.items():
                dist.barrier(self.group)
                got[way].append(run())
        if dist.get_rank() == 0:
            cells = "".join(f" {way} {statistics.median(us):>10.2f}" for way, us in got.items())
            ratio = statistics.median(a / b for a, b in zip(got["dlring"], got["gloo"]))
            print(f"{name:<16}{cells}   dlring/gloo {ratio:.3f}", flush=True)


def bench_call(table, groups):
    x, memory = torch.zeros(2), array.array("f", [0, 0])
    ways = {way: lambda group=group: timed(lambda: dist.all_reduce(x, group=group), 50) for way, group in groups.items()}
    with dlaunch.init() as comm:
        ways["C"] = lambda: _core.measure(comm, memory, 50) / 1000
        table.row("call 8 B", ways)


def bench_layer(table, groups):
    for size in 8, 16, 32, 64:
        x, y = torch.zeros(size * 256), torch.zeros(size * 256)

        def layer(group):
            dist.all_reduce(x, group=group)
            dist.all_reduce(y, group=group)
        table.row(f"layer {size} KiB", {way: lambda group=group: timed(lambda: layer(group), 30)
                                        for way, group in groups.items() if way != "fake"})


def bench_ddp(table, groups):
    def step_of(group):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(6)))  # 25.2 MB
        model = torch.nn.parallel.DistributedDataParallel(layers, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(1, 1024)

        def step():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return lambda: timed(step, 3)
    table.row("ddp 25 MB", {way: step_of(group) for way, group in groups.items() if way != "fake"})


BENCHES = {"call": bench_call, "layer": bench_layer, "ddp": bench_ddp}


def main():
    parser = argparse.ArgumentParser(prog="python -m dlaunch.torch.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", choices=[*BENCHES, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    torch.set_num_threads(1)
    dist.init_process_group("dlring")
    from torch.testing._internal.distributed import fake_pg  # registers it  # noqa: F401
    groups = {"dlring": dist.group.WORLD, "gloo": dist.new_group(backend="gloo"), "fake": dist.new_group(backend="fake")}
    if dist.get_rank() == 0:
        print(f"# PyTorch {torch.__version__}, {dist.get_world_size()} ranks; microseconds", flush=True)
    table = Table(groups["dlring"], options.rounds)
    for what in options.what or BENCHES:
        BENCHES[what](table, groups)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

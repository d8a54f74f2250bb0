"""recovery_probe.cc for torchrun: steps together with the other ranks over Gloo, and appends the same
lines to EVENTS. Without arguments it prints the time at which it was ready to join."""

import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    if len(sys.argv) < 2:
        return print(time.monotonic_ns())
    events = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]

    def tell(what, *more):
        words = [os.getpid(), what, time.monotonic_ns(), *more]
        os.write(events, (" ".join(map(str, words)) + "\n").encode())

    tell("start")
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    tell("in", attempt, rank, size)
    sums = torch.zeros(2, dtype=torch.int64)
    first = True
    while sums[1] == 0:
        sums = torch.tensor([rank, int(os.path.exists(sys.argv[1] + ".stop"))])
        try:
            dist.all_reduce(sums)
        except RuntimeError:
            tell("lost", attempt, rank, size)
            raise
        if first:
            tell("first", attempt, rank, size)
        first = False
        time.sleep(0.001)


main()

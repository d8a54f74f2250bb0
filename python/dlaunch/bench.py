"""Measures how much longer a call takes from Python than from C: the twin of dlaunch-bench.

    python -m dlaunch.bench [-b 8] [-e 1M] [-f 4] [--rounds 200]
    dlaunch --nproc 2 -m dlaunch.bench

Each size is an all_reduce of float32 in place. Rounds of calls from C and from Python take turns, so that both run
under the same conditions; the figures are medians over the rounds, in microseconds a call.
"""

import argparse
import array
import statistics
import time

import dlaunch
from dlaunch import _core


def parse_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def time_python(comm, x, times):
    all_reduce = comm.all_reduce
    begin = time.perf_counter()
    for _ in range(times):
        all_reduce(x, out=x)
    return (time.perf_counter() - begin) / times * 1e9


def measure(comm, size, rounds):
    """Medians of both ways, in microseconds, and of the extra time of Python in each round."""
    x = array.array("f", bytes(max(size // 4, 1) * 4))
    times = max(5, min(200, (1 << 22) // size))  # short, so that most rounds have the core to themselves
    by_c, by_python = [], []
    for _ in range(rounds):
        comm.barrier()
        by_c.append(_core.measure(comm, x, times))
        comm.barrier()
        by_python.append(time_python(comm, x, times))
    added = [python - c for c, python in zip(by_c, by_python)]
    return tuple(statistics.median(ns) / 1000 for ns in (by_c, by_python, added))


def main():
    parser = argparse.ArgumentParser(prog="python -m dlaunch.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("-b", "--minbytes", type=parse_bytes, default=8)
    parser.add_argument("-e", "--maxbytes", type=parse_bytes, default=None, help="default: as -b")
    parser.add_argument("-f", "--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    if options.factor < 2 or options.minbytes < 4 or options.rounds < 1:
        parser.error("-f must be 2 or more, -b 4 or more, and --rounds 1 or more")
    with dlaunch.init() as comm:
        if comm.rank == 0:
            print(f"# all_reduce of float32, in place; {comm.size} ranks, {comm.transport}")
            print(f"# {'bytes':>12} {'C us':>10} {'Python us':>10} {'added us':>10}", flush=True)
        size = options.minbytes
        while size <= (options.maxbytes or options.minbytes):
            by_c, by_python, added = measure(comm, size, options.rounds)
            if comm.rank == 0:
                print(f"  {size:>12} {by_c:>10.2f} {by_python:>10.2f} {added:>10.2f}", flush=True)
            size *= options.factor


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Does something bad to a job of the real binaries and looks whether what has to hold holds: equal
rounds and members on all survivors, exact sums and results, and nothing left behind. FAULTS.md says
what each number stands for.

usage: run.py [--seeds N] [--from SEED] [--keep] [NUMBER...]      all cases without a number
       run.py --soak KILLS [--from SEED]                          one job, so many kills
       run.py --train SECONDS [--from SEED]                       a training, a kill every two seconds"""

import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import cases
import deaths
import resources
import soak
import train
from job import Broken, Job, Skipped

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = {**cases.CASES, **deaths.CASES, **resources.CASES}


class Start:
    """Starts jobs and folders for a case, and removes them at its end."""

    def __init__(self, build, keep, notes=None):
        self.notes = notes if notes is not None else collections.Counter()
        self.build, self.keep, self.jobs, self.folders, self.last = build, keep, [], [], []

    def __call__(self, *args, **named):
        self.jobs.append(Job(self.build, *args, **named))
        return self.jobs[-1]

    def folder(self):
        self.folders.append(tempfile.mkdtemp(prefix="dl-faults-"))
        return self.folders[-1]

    def note(self, what):
        self.notes[what] += 1

    def at_end(self, do):
        self.last.append(do)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        for job in self.jobs:
            job.clean(self.keep and kind is not None and kind is not Skipped)
        for do in self.last:
            do()
        for folder in self.folders:
            shutil.rmtree(folder)


def run_case(number, seed, args, notes):
    """None, or what is wrong."""
    try:
        with Start(args.build, args.keep, notes) as start:
            CASES[number](start, random.Random(f"{number}/{seed}"))
    except Skipped as why:
        notes[f"skipped: {why}"] += 1
    except Broken as why:
        return f"seed {seed} BROKEN: {why}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, choices=[*sorted(CASES), []])
    parser.add_argument("--build", default=os.environ.get("BUILD", os.path.join(ROOT, "build")))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--keep", action="store_true", help="leave the folders of jobs that went wrong")
    parser.add_argument("--soak", type=int, metavar="KILLS")
    parser.add_argument("--train", type=int, metavar="SECONDS")
    args = parser.parse_args()
    if args.train:
        if not os.path.exists(f"{args.build}/examples/train_fashion_mnist"):
            print("SKIP: Eigen or zlib is not installed")
            return 77
        if not os.path.exists("/usr/share/datasets/fashion-mnist"):
            print("SKIP: dataset-fashion-mnist is not installed")
            return 77
        return train.run(args.build, random.Random(f"train/{args.first}"), args.train)
    if args.soak:
        with Start(args.build, args.keep) as start:
            return soak.run(start, random.Random(f"soak/{args.first}"), args.soak)
    broken = 0
    for number in args.numbers or sorted(CASES):
        begin, said, notes = time.monotonic(), [], collections.Counter()
        for seed in range(args.first, args.first + args.seeds):
            what = run_case(number, seed, args, notes)
            if what:
                said.append(what)
        broken += len(said)
        print(f"{number:2} {CASES[number].__doc__}: {args.seeds} seeds, {len(said)} broken, "
              f"{time.monotonic() - begin:.1f} s", flush=True)
        for what, count in sorted(notes.items()):
            print(f"   {count} x {what}", flush=True)
        for what in said:
            print(what, flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is cleaned up
    try:
        sys.exit(main())
    except Broken as why:
        sys.exit(f"BROKEN: {why}")

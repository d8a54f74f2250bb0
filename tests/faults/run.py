#!/usr/bin/env python3
"""Does something bad to a job of the real binaries and looks whether what has to hold holds: equal
rounds and members on all survivors, exact sums and results, and nothing left behind. FAULTS.md says
what each number stands for.

usage: run.py [--seeds N] [--from SEED] [--keep] [NUMBER...]      all cases without a number
       run.py --soak KILLS [--seed SEED]                          one job, so many kills"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time

import cases
import deaths
import resources
import soak
from job import Broken, Job, Skipped

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = {**cases.CASES, **deaths.CASES, **resources.CASES}


class Start:
    """Starts jobs and folders for a case, and removes them at its end."""

    def __init__(self, build, keep):
        self.build, self.keep, self.jobs, self.folders = build, keep, [], []

    def __call__(self, *args, **named):
        self.jobs.append(Job(self.build, *args, **named))
        return self.jobs[-1]

    def folder(self):
        self.folders.append(tempfile.mkdtemp(prefix="dl-faults-"))
        return self.folders[-1]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        for job in self.jobs:
            job.clean(self.keep and kind is not None and kind is not Skipped)
        for folder in self.folders:
            shutil.rmtree(folder)


def run_case(number, seed, args):
    """None, or what is wrong."""
    try:
        with Start(args.build, args.keep) as start:
            CASES[number](start, random.Random(f"{number}/{seed}"))
    except Skipped as why:
        return f"skipped: {why}"
    except Broken as why:
        return f"seed {seed} BROKEN: {why}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, choices=sorted(CASES) + [[]])
    parser.add_argument("--build", default=os.environ.get("BUILD", os.path.join(ROOT, "build")))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--keep", action="store_true", help="leave the folders of jobs that went wrong")
    parser.add_argument("--soak", type=int, metavar="KILLS")
    args = parser.parse_args()
    if args.soak:
        with Start(args.build, args.keep) as start:
            return soak.run(start, random.Random(f"soak/{args.first}"), args.soak)
    broken = 0
    for number in args.numbers or sorted(CASES):
        begin, said, notes = time.monotonic(), [], []
        for seed in range(args.first, args.first + args.seeds):
            what = run_case(number, seed, args)
            if what:
                (notes if what.startswith("skipped") else said).append(what)
        broken += len(said)
        print(f"{number:2} {CASES[number].__doc__}: {args.seeds} seeds, {len(said)} broken, "
              f"{time.monotonic() - begin:.1f} s {'; '.join(sorted(set(notes)))}", flush=True)
        for what in said:
            print(what, flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as why:
        sys.exit(f"BROKEN: {why}")

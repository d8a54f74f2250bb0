"""PyTorch's own tests of a back end, torch.testing._internal.distributed.distributed_test, on CPU tensors.

usage: suite.py BACKEND OUT [--ranks N] [--jobs N] [--match REGEX] [--list FILE] [--limit SECONDS]

Imports PyTorch once; each test runs in processes that are forked from there, one for each rank. OUT
gets a line for each test: NAME RESULT SECONDS REASON. RESULT is PASS, FAIL, SKIP, HANG (some rank was not
over after the limit) or CRASH (a signal). TORCH_DISTRIBUTED_DEBUG means what it means to PyTorch.

Tests that PyTorch skips because they are for Gloo or MPI run here on every back end: what those can
do on CPU tensors all of them shall. Tests for NCCL and GPUs stay skipped.
"""

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest

SKIPPED = 77
# PyTorch's own runner ends a test so where the machine lacks what the test is about.
SKIPS_OF_PYTORCH = range(70, 100)


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--match", default="")
    parser.add_argument("--list")
    parser.add_argument("--limit", type=float, default=90)
    return parser.parse_args()


class LikeGloo(str):
    """A back end's name that the tests which look at names take for Gloo's."""

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def load(backend, ranks):
    """The module of the tests, made for this back end."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(ranks), INIT_METHOD="file://set later", OMP_NUM_THREADS="1",
                      CUDA_VISIBLE_DEVICES="", MASTER_ADDR="127.0.0.1", TEMP_DIR=tempfile.gettempdir())
    import torch
    torch.set_num_threads(1)
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:  # PyTorch's test cases are made of its class, and these ask it nothing
        sys.modules["expecttest"] = types.SimpleNamespace(ACCEPT=False, TestCase=unittest.TestCase)
    if backend == "dlring":
        import dlaunch.torch  # noqa: F401: registers it
    from torch.testing._internal import common_distributed
    for feature in "ddp", "subgroup", "plugin", "gpu":
        common_distributed.DistTestCases.backend_feature.get(feature, set()).add(backend)
    from torch.testing._internal.distributed import distributed_test
    # Read again by each test: all others skip their groups with less than 8 ranks.
    os.environ["BACKEND"] = "mpi"
    distributed_test.BACKEND = LikeGloo(backend)
    return distributed_test


class Test:
    """One test under way, in processes of its own."""

    def __init__(self, suite, backend, name, ranks):
        self.name, self.began = name, time.monotonic()
        self.folder = tempfile.mkdtemp(prefix="dl-suite-")
        for part in "barrier", "test_dir", "init_dir":
            os.mkdir(f"{self.folder}/{part}")
        open(f"{self.folder}/lockfile", "w").close()
        self.codes = {}
        self.ranks = {}  # by pid
        for rank in range(ranks):
            pid = os.fork()
            if pid == 0:
                self.be_rank(suite, backend, rank, ranks)
            self.ranks[pid] = rank

    def be_rank(self, suite, backend, rank, ranks):
        os.dup2(os.open(f"{self.folder}/out.{rank}", os.O_CREAT | os.O_WRONLY, 0o644), 1)
        os.dup2(1, 2)
        code, why = 1, ""
        try:
            code = self.run_rank(suite, backend, rank, ranks)
        except unittest.SkipTest as e:
            code, why = SKIPPED, str(e)
        except SystemExit as e:
            code, why = SKIPPED if e.code in SKIPS_OF_PYTORCH else e.code or 0, self.reason_of(e.code)
        except BaseException as e:
            why = f"{type(e).__name__}: {e}"
            traceback.print_exc()
        with open(f"{self.folder}/why.{rank}", "w") as file:
            file.write(" ".join(why.split())[:300])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    @staticmethod
    def reason_of(code):
        from torch.testing._internal import common_distributed
        for skip in common_distributed.TEST_SKIPS.values():
            if skip.exit_code == code:
                return skip.message
        return f"exit {code}"

    def run_rank(self, suite, backend, rank, ranks):
        import torch
        import torch.distributed as dist
        from datetime import timedelta
        torch.manual_seed(0)
        random.seed(0)
        os.environ["TEMP_DIR"] = self.folder
        suite.INIT_METHOD = f"file://{self.folder}/init_dir/shared"

        class Case(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
            pass

        case = Case(self.name)
        case.rank, case.file_name = rank, f"{self.folder}/store"
        dist.init_process_group(backend, init_method=f"file://{case.file_name}", world_size=ranks, rank=rank,
                                timeout=timedelta(seconds=suite.CUSTOM_PG_TIMEOUT.get(self.name, 60)))
        suite.Barrier.barrier_id = 0
        case._barrier()
        getattr(case, self.name)()
        if dist.is_initialized():
            case._barrier()
            dist.destroy_process_group()
        return 0

    def ended(self, pid, status):
        self.codes[self.ranks.pop(pid)] = os.waitstatus_to_exitcode(status)

    def end(self):
        for pid in self.ranks:
            os.kill(pid, signal.SIGKILL)
        for pid in self.ranks:
            os.waitpid(pid, 0)

    def result(self):
        codes = self.codes.values()
        if self.ranks:
            return "HANG"
        if any(code < 0 for code in codes):
            return "CRASH"
        if any(code not in (0, SKIPPED) for code in codes):
            return "FAIL"
        return "SKIP" if SKIPPED in codes else "PASS"

    def why(self):
        """The reasons of the ranks that say one, each once."""
        reasons = {}
        for rank in range(len(self.codes) + len(self.ranks)):
            try:
                with open(f"{self.folder}/why.{rank}") as file:
                    if reason := file.read():
                        reasons.setdefault(reason, []).append(str(rank))
            except OSError:
                pass
        return " | ".join(f"[{','.join(ranks)}] {reason}" for reason, ranks in reasons.items())[:600]


def skipped_by_pytorch(method):
    """Why, unless it is only for the name of the back end."""
    if not getattr(method, "__unittest_skip__", False):
        return None
    why = method.__unittest_skip_why__
    return None if re.search("gloo|mpi", why, re.I) else why


def chosen(suite, options):
    names = [n for n in dir(suite.DistributedTest._DistTestBase) if n.startswith("test_")]
    if options.list:
        with open(options.list) as file:
            wanted = [line.split("#")[0].strip() for line in file]
        names = [n for n in names if n in wanted]
    return [n for n in names if re.search(options.match, n)]


def reap(running):
    """Waits for a moment for a process of theirs; returns the tests that are over."""
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid == 0:
        time.sleep(0.02)
    for test in running:
        if pid in test.ranks:
            test.ended(pid, status)
    return [t for t in running if not t.ranks]


def run(suite, options, out):
    def say(name, result, seconds, why):
        out.write(f"{name} {result} {seconds:.1f} {why}\n")
        out.flush()

    waiting, running = chosen(suite, options), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            why = skipped_by_pytorch(getattr(suite.DistributedTest._DistTestBase, name))
            if why is not None:
                say(name, "SKIP", 0, why)
            else:
                running.append(Test(suite, options.backend, name, options.ranks))
        if not running:
            continue
        over = reap(running)
        over += [t for t in running if t not in over and time.monotonic() - t.began > options.limit]
        for test in over:
            test.end()
            say(test.name, test.result(), time.monotonic() - test.began, test.why())
            keep = os.environ.get("KEEP_OUTPUT")
            if keep:
                shutil.copytree(test.folder, f"{keep}/{test.name}.{options.backend}", dirs_exist_ok=True)
            shutil.rmtree(test.folder, True)
            running.remove(test)


def main():
    options = parsed()
    suite = load(options.backend, options.ranks)
    with open(options.out, "w") as out:
        run(suite, options, out)


main()

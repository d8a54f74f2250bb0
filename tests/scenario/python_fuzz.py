"""Random calls of dlaunch from Python, right and wrong ones, by seed: whatever is given, the outcome is a result
or an exception. Under AddressSanitizer (tests/scenario/meson.build) it also shows that no memory is touched that
is not the call's.

usage: python_fuzz.py FIRST_SEED SEEDS [--no-fork]     one seed takes about a tenth of a second

--no-fork: no player forks. In a child, AddressSanitizer's allocator waits for ever if a thread of the parent was
allocating at that time.
"""
import array
import ctypes
import gc
import mmap
import os
import random
import sys
import threading

import numpy as np

import dlaunch
from dlaunch import _core

METHODS = [name for name in dir(dlaunch.Communicator) if not name.startswith("__")]
CALLS = [name for name in METHODS if callable(getattr(dlaunch.Communicator, name)) and name != "finalize"]
TYPES = ["f4", "f8", "f2", "i1", "i4", "i8", "u1", "u2", "u8", "?", "c8", "c16", "g", ">f4", "S3", "U2", "O", "M8[s]",
         "i4,f8", "V4"]
WORDS = ["x", "op", "out", "root", "tag", "peer", "counts", "xs", "key", "bytes", "memory", "nothing"]
ALLOWED = (TypeError, ValueError, OverflowError, BufferError, IndexError, AttributeError, MemoryError, RuntimeError,
           OSError)


class Interface:
    """An array interface with something wrong in it, or that calls back."""

    def __init__(self, rng, comm, real):
        self.rng, self.comm, self.real = rng, comm, real

    @property
    def __array_interface__(self):
        said = dict(self.real.__array_interface__)
        wrong = self.rng.choice(["shape", "strides", "typestr", "data", "none", "calls", "mask", "right"])
        if wrong == "shape":
            said["shape"] = self.rng.choice([(-1,), (1 << 62, 4), "text", (1.5,), None, (0,), tuple([1] * 70)])
        elif wrong == "strides":
            said["strides"] = self.rng.choice([(-8,), (0,), "text", (8, 8), (1 << 70,)])
        elif wrong == "typestr":
            said["typestr"] = self.rng.choice(["", "<", "<f", "<f3", "<f99999999999", ">f8", "|O8", 3, "é", "\udc80xx"])
        elif wrong == "data":
            said["data"] = self.rng.choice([None, (0, False), (-1, False), (1 << 70, False), ("a", False), (), b"data",
                                            (said["data"][0] + 1, False)])
        elif wrong == "mask":
            said["mask"] = self.real
        elif wrong == "calls":
            self.comm.barrier() if self.rng.random() < 0.5 else self.comm.finalize()
        return None if wrong == "none" else said


class Dlpack:
    """DLPack that gives something else, or the true one of another array."""

    def __init__(self, rng, real):
        self.rng, self.real = rng, real

    def __dlpack_device__(self):
        return self.rng.choice([(1, 0), (2, 0), (99, 0), None, (), ("a", 0), (1, 0), (1, 0)])

    def __dlpack__(self, **words):
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.real.__dlpack__()
        if kind == 1:
            raise self.rng.choice([TypeError, ValueError, RuntimeError])("no DLPack")
        return self.rng.choice([None, 3, self.real])


class Finalized:
    """An array whose end calls back."""

    def __init__(self, at_end, bytes_=8):
        self.at_end, self.real = at_end, np.zeros(bytes_, "u1")

    @property
    def __array_interface__(self):
        return self.real.__array_interface__

    def __del__(self):
        try:
            self.at_end()
        except ALLOWED:
            pass


def some_array(rng):
    dtype = rng.choice(TYPES)
    shape = tuple(rng.choice([0, 1, 1, 2, 3, 8]) for _ in range(rng.randrange(4)))
    made = np.zeros(shape, dtype)
    for _ in range(rng.randrange(3)):
        way = rng.randrange(7)
        if way == 0:
            made = made.T
        elif way == 1 and made.ndim:
            made = made[::rng.choice([-1, 2, 1])]
        elif way == 2:
            made = np.broadcast_to(made, (2,) + made.shape)
        elif way == 3 and made.flags.owndata:
            made.flags.writeable = False
        elif way == 4 and made.ndim:
            made = made[1:]
        elif way == 5:
            made = np.frombuffer(bytearray(made.size * 8 + 9), "u1")[1:1 + made.size * 8].view("f8")
        elif way == 6:
            made = np.asfortranarray(made)
    return made


def some_object(rng, comm):
    kind = rng.randrange(16)
    if kind < 6:
        return some_array(rng)
    real = np.zeros(rng.choice([0, 1, 4]))
    if kind == 6:
        released = memoryview(bytearray(8))
        released.release()
        return released
    if kind == 7:
        closed = mmap.mmap(-1, 4096)
        closed.close()
        return closed
    return rng.choice([
        lambda: None, lambda: rng.randrange(-3, 9), lambda: 1 << 80, lambda: "sum", lambda: "max", lambda: "key",
        lambda: b"bytes", lambda: bytearray(8), lambda: array.array("d", [1.0] * 4), lambda: (ctypes.c_int * 4)(),
        lambda: [np.ones(2), np.ones(3)], lambda: [1, 1], lambda: (), lambda: object(), lambda: 0.5, lambda: real,
        lambda: Interface(rng, comm, real), lambda: Dlpack(rng, real), lambda: comm, lambda: mmap.mmap(-1, 4096),
        lambda: memoryview(np.ones((2, 2)))[::-1], lambda: np.float32(1), lambda: type, lambda: "\udc80", lambda: dlaunch.premul_sum(rng.random()),
        lambda: dlaunch.Op(rng.choice([np.add, lambda a, b: None, lambda a, b: a[1:], len, type]))])()


class Player:
    def __init__(self, seed, box):
        self.rng, self.box = random.Random(seed), box  # the box is for all threads
        self.kept, self.memories = [], []
        self.deep = 0  # ends of arrays within ends of arrays

    def begin(self):
        self.box["comm"] = dlaunch.init("file:///unused", rank=0, size=1, op_timeout=0.05)
        self.box["usable"] = True

    def turn(self):
        rng, comm = self.rng, self.box["comm"]
        if (comm.closed or not self.box["usable"]) and rng.random() < 0.3:
            self.begin()
            comm = self.box["comm"]
        kind = rng.random()
        if kind < 0.75:
            self.call(comm)
        elif kind < 0.78:
            real = np.zeros(rng.choice([1, 100, 10000]))
            self.kept.append(comm.iall_reduce(real, out=np.empty_like(real)))
        elif kind < 0.80:
            self.kept.append(comm.ibroadcast(Finalized(self.end_of_array)))
        elif kind < 0.85 and self.kept:
            request = self.kept.pop(rng.randrange(len(self.kept)))
            rng.choice([request.wait, request.test, lambda: None])()
        elif kind < 0.90 and self.memories:
            memory = self.memories.pop()
            rng.choice([lambda: comm.free(memory), lambda: self.kept.append(np.frombuffer(memory, "u1")),
                        lambda: comm.all_reduce(memory, out=memory), lambda: len(memory)])()
        elif kind < 0.93:
            raw = bytearray(64)
            self.kept.append(comm.ibroadcast(raw))
            raw.extend(b"more")
        elif kind < 0.95:
            dlaunch.wait_any([thing for thing in self.kept if isinstance(thing, dlaunch.Request)])
        elif kind < 0.97:
            state = _core.new_state(comm)
            rng.choice([lambda: state.replicated("w", some_object(rng, comm)), state.commit, state.restore,
                        lambda: state.sampler("s", 0, 1, 2), lambda: state.sampler_next(3), state.sync])()
        elif kind < 0.99:
            self.kept.clear()
        else:
            comm.finalize()

    def end_of_array(self):
        if self.deep < 3:
            self.deep += 1
            self.turns(self.rng.randrange(3))
            self.deep -= 1

    def call(self, comm):
        rng = self.rng
        args = [some_object(rng, comm) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 12]))]
        words = {rng.choice(WORDS): some_object(rng, comm) for _ in range(rng.choice([0, 0, 1, 1, 2]))}
        name = rng.choice(CALLS)
        if name in ("abort", "recv", "recv_any", "irecv_any"):  # the communicator may be of no use then
            self.box["usable"] = False
        if name == "key_get":  # a limit of 2**80 s for a key that does not exist is long
            args = [0.01 if isinstance(arg, int) and arg > 0 else arg for arg in args]
        made = getattr(comm, name)(*args, **words)
        if isinstance(made, dlaunch.Memory):
            self.memories.append(made)
        elif isinstance(made, (dlaunch.Request, dlaunch.Communicator)):
            self.kept.append(made)

    def turns(self, count):
        for _ in range(count):
            try:
                self.turn()
            except ALLOWED:
                pass


def play(seed, forks):
    box = {}
    player = Player(seed, box)
    player.begin()
    others = [Player(seed * 1000 + i, box) for i in range(2 if seed % 4 == 0 else 0)]
    threads = [threading.Thread(target=other.turns, args=(200,)) for other in others]
    for thread in threads:
        thread.start()
    player.turns(200)
    for thread in threads:
        thread.join()
    if forks and seed % 16 == 1:
        child = os.fork()
        if child == 0:
            player.turns(50)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, f"seed {seed}: the child has failed"
    del player, others, threads
    box.clear()
    gc.collect()


def finalizers():
    """The end of an array waits for calls that the communicator is looking at."""
    ended = []

    def waits(requests):
        for request in requests:
            request.wait()
        ended.append(len(requests))

    def begin(comm):
        """Two calls that are done, and one without a request whose array waits for both when it ends."""
        requests = [comm.iall_reduce(np.full(4, number)) for number in (1.0, 2.0)]
        comm.ibroadcast(Finalized(lambda: waits(requests)))
        while not all(request.test() for request in requests):
            pass

    comm = dlaunch.init("file:///unused", rank=0, size=1, op_timeout=5)
    begin(comm)
    while not ended:
        comm.ibarrier().wait()  # each call drops earlier ones that are done
    begin(comm)
    comm.finalize()
    assert ended == [2, 2], ended

    # The last memory of the communicator ends while finalize() looks at the calls.
    comm = dlaunch.init("file:///unused", rank=0, size=1, op_timeout=5)
    memory = np.frombuffer(comm.alloc(64), "u1")
    request = comm.ibroadcast(memory)
    comm.ibroadcast(np.ones(4))
    del memory, request
    comm.finalize()

    comm = dlaunch.init("file:///unused", rank=0, size=1, op_timeout=5)
    requests = [comm.iall_reduce(np.ones(4))]
    try:
        with comm.batch():
            for _ in range(3):
                comm.broadcast(Finalized(lambda: waits(requests)))
            raise KeyError("drops the batch")
    except KeyError:
        pass
    assert ended == [2, 2, 1, 1, 1], ended
    assert comm.all_reduce(np.ones(4))[0] == 1
    comm.finalize()


def main():
    finalizers()
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        play(seed, "--no-fork" not in sys.argv)
    print("only results and exceptions")


main()

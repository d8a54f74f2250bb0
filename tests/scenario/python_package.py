"""Each call of dlaunch gives NumPy's result, wrong calls raise, and ranks that wait for a lost rank get an error."""
import array
import ctypes
import gc
import itertools
import os
import signal
import sys
import threading
import time
import traceback
import weakref

import numpy as np

import dlaunch

comm = dlaunch.init(op_timeout=60)
rank, size = comm.rank, comm.size
if len(sys.argv) > 1:  # one rank will kill itself: the others have their say before they end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
FOLDS = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum, "band": np.bitwise_and,
         "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def of(r, shape, dtype="float64"):
    """What rank r gives: small numbers, so that every order of sums gives the same."""
    return np.random.default_rng(r).integers(1, 4, shape).astype(dtype)


def same(got, expected):
    assert isinstance(got, np.ndarray) and got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
    assert np.array_equal(got, expected), (got, expected)


def raises(kinds, call, *args, says="", **words):
    try:
        call(*args, **words)
    except kinds as error:
        assert says in str(error), error
        return error
    raise AssertionError(f"{call} {args} {words} was not refused")


def reductions():
    for dtype in TYPES:
        mine, all_of = of(rank, (4, 3), dtype), [of(r, (4, 3), dtype) for r in range(size)]
        for op, fold in FOLDS.items():
            if dtype.startswith("float") and op in ("band", "bor", "bxor"):
                raises(dlaunch.Unsupported, comm.all_reduce, mine, op)
                continue
            total = all_of[0]
            for other in all_of[1:]:
                total = fold(total, other)
            same(comm.all_reduce(mine, op), total)
            same(comm.reduce_scatter(mine, op), total[rank:rank + 1])
            at_root = comm.reduce(mine, op, 1)
            same(at_root, total) if rank == 1 else None
            assert (at_root is None) == (rank != 1)
            out = np.empty_like(mine)
            assert comm.all_reduce(mine, op, out=out) is out
            same(out, total)
            same(comm.iall_reduce(mine, op).wait(), total)
        same(mine, of(rank, (4, 3), dtype))
        assert comm.all_reduce(mine, out=mine) is mine
    values = np.array([rank + 1j, 2.0])
    same(comm.all_reduce(values), sum(np.array([r + 1j, 2.0]) for r in range(size)))
    same(comm.all_reduce(np.array([rank == 0, False]), "max"), np.array([True, False]))
    pieces = [of(r, 300, "float32") for r in range(size)]
    exact, residual = sum(pieces) / np.float32(size), np.zeros(300, "float32")
    assert np.array_equal(comm.compressed_average(pieces[rank], "none"), exact)
    close = [comm.compressed_average(pieces[rank], "int4", residual=residual) for _ in range(50)]
    assert np.abs(close[0] - exact).max() > 0.05 > np.abs(np.mean(close, axis=0) - exact).max()
    assert comm.icompressed_average(residual, "bf16", out=residual).wait() is residual
    raises(ValueError, comm.compressed_average, exact, "int3", says="codec is 'int3', and must be 'none'")
    raises(TypeError, comm.compressed_average, values, "int4", says="x has type complex128, and must have float32")
    raises(ValueError, comm.compressed_average, exact, "int4", residual=residual[1:], says="needs 300")
    factors = [np.array([r + 1j, 2.0], "complex64") for r in range(size)]
    same(comm.all_reduce(factors[rank], "product"), np.prod(factors, axis=0))
    raises(dlaunch.Unsupported, comm.all_reduce, values, "max", says="max of complex128 has no meaning")
    same(comm.scan(values, dlaunch.Op(np.multiply)),
         np.array([np.prod([r + 1j for r in range(rank + 1)]), 2.0 ** (rank + 1)]))
    counts = list(range(size))  # rank 0 gets nothing
    pairs = [np.arange(sum(counts)) + 1j * r for r in range(size)]
    at = sum(counts[:rank])
    same(comm.reduce_scatter_v(pairs[rank], counts), sum(pairs)[at:at + rank])
    ordered = [np.random.default_rng(r).normal(size=5000).astype("float32") for r in range(size)]
    prefixes = list(itertools.accumulate(ordered))  # from left to right, as the library
    same(comm.scan(ordered[rank]), prefixes[rank])
    before = comm.exscan(ordered[rank])
    same(before, prefixes[rank - 1]) if rank > 0 else None
    assert (before is None) == (rank == 0)
    kept = np.full(3, -1.0)
    assert comm.exscan(np.full(3, 2.0), "product", out=kept) is kept
    same(kept, np.full(3, 2.0 ** rank if rank > 0 else -1.0))
    same(comm.iscan(np.array([1 + 1j])).wait(), np.array([(1 + 1j) * (rank + 1)]))
    raises(dlaunch.Unsupported, comm.scan, kept, "avg", says="scan: avg of double has no meaning")
    shards = comm.own_shards(6)
    assert [s for part in comm.all_gather(np.array([shards.start, shards.stop])) for s in range(*part)] == list(range(6))
    of_shards = [of(10 + s, (3, 2)) for s in range(6)]
    same(comm.all_reduce_shards([of_shards[s] for s in shards], 6), sum(of_shards))
    out = np.empty((3, 2))
    assert comm.all_reduce_shards([of_shards[s] for s in shards], 6, "avg", out=out) is out
    same(out, sum(of_shards) / 6)
    raises(ValueError, comm.all_reduce_shards, [out] * 7, 6, says="this rank has")
    raises(ValueError, comm.all_reduce_shards, [], 0, says="shards must be 1 to 65536")
    one = comm.own_shards(1)
    raises(ValueError, comm.all_reduce_shards, [], 1, says="needs out") if not one else None
    same(comm.all_reduce_shards([np.ones(2)] * len(one), 1, out=np.empty(2)), np.ones(2))
    somes(comm)
    lists = comm.all_reduce_list([of(rank, 3), of(rank, (2, 2))])
    for got, shape in zip(lists, (3, (2, 2))):
        same(got, sum(of(r, shape) for r in range(size)))


def somes(comm):
    rank, size = comm.rank, comm.size
    got, given, fate = comm.all_reduce_some(of(rank, (2, 3)), size)
    same(got, sum(of(r, (2, 3)) for r in range(size)))
    assert (given, fate) == ([1] * size, "in")
    x = np.full(4, rank + 1.0)
    same(comm.all_reduce_some(x, size, "avg", out=x)[0], np.full(4, (size + 1) / 2))
    last = rank == size - 1
    if size > 1 and last:  # the others make two calls without this rank
        while comm.some_behind() < 2:
            time.sleep(0.001)
    mine, out = np.ones(3), np.empty(3)
    expected = [1] * (size - 1) + [0] if size > 1 else [1]
    for late, became in (("carry", "carried"), ("drop", "dropped")):
        got, given, fate = comm.all_reduce_some(mine, max(1, size - 1), late=late, slot=5, out=out)
        assert got is out and given == expected and fate == (became if size > 1 and last else "in")
        same(out, np.full(3, float(sum(expected))))
    got, given, fate = comm.all_reduce_some(None if last else mine, size, "avg", wait=60, slot=5, out=out)
    assert given == expected[:-1] + [1 if size > 1 else 0] and fate == ("in" if size > 1 else "none")
    same(got, np.full(3, 1.0 if size > 1 else 0.0))
    raises(ValueError, comm.all_reduce_some, None, 1, says="needs out")
    raises(ValueError, comm.all_reduce_some, mine, 1, late="never", says="'drop' or 'carry'")
    raises(dlaunch.Unsupported, comm.all_reduce_some, mine, 1, "max", says="only sums and averages")
    raises(TypeError, comm.all_reduce_some, mine, says="need")


def small_floats():
    try:
        import ml_dtypes
    except ImportError:
        return "skipped: ml_dtypes is not installed"
    for name in ("float8_e4m3fn", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        every = np.arange(256, dtype="uint8").view(dtype)
        all_of = [np.roll(every, 31 * r) for r in range(size)]
        with np.errstate(all="ignore"):
            total = sum(x.astype("float32") for x in all_of).astype(dtype)
        got = comm.all_reduce(all_of[rank])
        assert got.dtype == dtype
        assert np.array_equal(got.astype("float32"), total.astype("float32"), equal_nan=True), (got, total)
        same(comm.broadcast(np.ones(3, dtype)), np.ones(3, dtype))


def of_their_own(error):
    """The frames of an operation's traceback hold no memory of the library, which has other values by now."""
    arrays = 0
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values() if frame.f_code.co_name in ("combine", "<lambda>") else ():
            if isinstance(value, memoryview):
                raises(ValueError, len, value, says="released memoryview")
            if isinstance(value, np.ndarray):
                while isinstance(value, np.ndarray):
                    value = value.base
                assert isinstance(value.obj if isinstance(value, memoryview) else value, (bytes, bytearray)), value
                arrays += 1
    assert arrays >= 2, "no frame shows the arrays"


def own_operations():
    def affine(a, b):  # x -> a0 * x + a1 for pairs of halves, one after the other: it does not commute
        a_factor, a_shift, b_factor, b_shift = a & 0xffff, a >> 16, b & 0xffff, b >> 16
        return (a_factor * b_factor & 0xffff) | ((b_factor * a_shift + b_shift & 0xffff) << 16)

    all_of = [np.random.default_rng(r).integers(0, 1 << 32, 70000, "uint64") for r in range(size)]
    prefixes = list(itertools.accumulate(all_of, affine))
    op, mine = dlaunch.Op(affine), all_of[rank]
    same(comm.all_reduce(mine, op), prefixes[-1])
    same(comm.scan(mine, op), prefixes[rank])
    request = comm.iall_reduce(mine, dlaunch.Op(affine))  # it keeps the operation
    same(request.wait(), prefixes[-1])
    share = len(mine) // size
    same(comm.reduce_scatter(mine, op), prefixes[-1][rank * share:(rank + 1) * share])

    def larger(a, b):  # in place
        np.maximum(a, b, out=b)

    for dtype in ("float16", "float32", "float64"):
        same(comm.all_reduce(np.full(3, 2, dtype), dlaunch.premul_sum(rank / 2)), np.full(3, sum(range(size)), dtype))
    raises(TypeError, dlaunch.premul_sum, "2")
    raises(dlaunch.Unsupported, comm.all_reduce, np.ones(3, "int32"), dlaunch.premul_sum(2), says="premul_sum of int32")
    x = np.array([rank, -rank], "float32")
    same(comm.all_reduce(x, dlaunch.Op(larger, commutative=True)), np.array([size - 1, 0], "float32"))
    raises(TypeError, dlaunch.Op, 3, says="Op: function must be callable")
    raises(TypeError, dlaunch.Op, larger, True)
    raises(TypeError, comm.all_reduce, np.array([True]), op, says="'a function' is not defined for bool")
    raises(TypeError, comm.all_reduce, x, larger, says="op must be a string or an Op")
    kept = []

    def keeps(a, b):
        kept.append((a, b, a.copy(), b.copy()))
    comm.scan(np.arange(70000.0) + rank, dlaunch.Op(keeps))
    comm.scan(np.full(70000, -1.0), dlaunch.Op(np.add))  # the library uses its memory again
    assert kept or rank == 0
    for a, b, a_then, b_then in kept:
        same(a, a_then)
        same(b, b_then)
        assert not a.flags.writeable
    for function, kind, says in ((lambda a, b: a[:1], ValueError, "returned an array of shape"),
                                 (lambda a, b: 1 / 0, ZeroDivisionError, "")):
        pair = comm.split(rank // 2)  # the call ends its communicator
        wrong = dlaunch.Op(function if rank % 2 == 0 else lambda a, b: None)
        if rank % 2 == 0:
            of_their_own(raises(kind, pair.all_reduce, np.ones(300000), wrong, says=says))
            raises(dlaunch.Aborted, pair.barrier, says="the function of its operation returned 1")
        else:
            def reduces_and_goes_on():
                pair.all_reduce(np.ones(300000), wrong)
                pair.barrier()
            assert raises(dlaunch.PeerLost, reduces_and_goes_on).rank == 0
        pair.finalize()


def own_errors():
    """An exception of an operation's function belongs to its call."""
    def fails(a, b):
        raise ZeroDivisionError("of fails")
    op, x = dlaunch.Op(fails), np.ones(300000)
    queued, dropped, last = (comm.split(rank // 2) for _ in range(3))
    if rank % 2 == 0:
        first, second = queued.iall_reduce(x, op), queued.iall_reduce(x, op)
        raises(dlaunch.Aborted, second.wait)
        raises(ZeroDivisionError, first.wait, says="of fails")
        request = dropped.iall_reduce(x, op)
        while not request.test():
            time.sleep(0.001)
        del request
        assert raises(dlaunch.PeerLost, last.all_reduce, x, op).rank == 1
    else:
        none = dlaunch.Op(lambda a, b: None)
        for pair in (queued, dropped):
            raises(dlaunch.PeerLost, lambda: [pair.all_reduce(x, none) for _ in range(3)])
        last.abort()
    for pair in (queued, dropped, last):
        pair.finalize()
    waited = []

    class Fake:
        def __init__(self, error):
            self.error = error

        def wait(self):
            waited.append(self)
            raise self.error
    raises(ZeroDivisionError, dlaunch.wait_all, [Fake(ZeroDivisionError()), Fake(dlaunch.Aborted())])
    assert len(waited) == 2


def own_functions_end():
    """A function and an exception of an Op that refer to it are garbage together."""
    def function(a, b):
        raise Refers()
    class Refers(Exception):
        pass
    Refers.op = function.op = dlaunch.Op(function)
    pair, x = comm.split(rank // 2), np.ones(300000)
    op, ended = function.op, weakref.ref(function)
    if rank % 2 == 0:
        raises(Refers, pair.all_reduce, x, op)
    else:
        raises(dlaunch.PeerLost, lambda: [pair.all_reduce(x, dlaunch.Op(np.add)) for _ in range(3)])
    pair.finalize()
    assert gc.is_tracked(op)
    del function, Refers, op
    gc.collect()
    assert ended() is None


def moves():
    for dtype in TYPES + ("bool", "int16", "complex128", "longdouble"):
        mine, all_of = of(rank, (2, 3), dtype), [of(r, (2, 3), dtype) for r in range(size)]
        same(comm.all_gather(mine), np.stack(all_of))
        gathered = comm.gather(mine, 2)
        same(gathered, np.stack(all_of)) if rank == 2 else None
        shared = mine.copy()
        assert comm.broadcast(shared, 3) is shared
        same(shared, all_of[3])
        counts = list(range(1, size + 1))
        parts = [of(r, r + 1, dtype) for r in range(size)]
        same(comm.all_gather_v(parts[rank], counts), np.concatenate(parts))
        at_root = comm.gather_v(parts[rank], counts, 0)
        same(at_root, np.concatenate(parts)) if rank == 0 else None
        whole, ends = [of(r, sum(counts), dtype) for r in range(size)], np.cumsum([0] + counts)
        same(comm.scatter_v(whole[rank] if rank == 2 else None, counts, 2, out=np.empty(rank + 1, dtype)),
             whole[2][ends[rank]:ends[rank + 1]])
        received = comm.all_to_all_v(whole[rank], counts, [rank + 1] * size)
        same(received, np.concatenate([x[ends[rank]:ends[rank + 1]] for x in whole]))
        square = of(rank, (size, 5), dtype)
        same(comm.all_to_all(square), np.stack([of(r, (size, 5), dtype)[rank] for r in range(size)]))
        part = np.empty(5, dtype)
        same(comm.scatter(square if rank == 1 else None, 1, out=part), of(1, (size, 5), dtype)[rank])
        right, left = (rank + 1) % size, (rank - 1) % size
        request = comm.isend(mine, right, 7)
        same(comm.recv(np.empty_like(mine), left, 7), all_of[left])
        request.wait()
    late = comm.irecv(np.empty(1), (rank + 1) % size, 11)
    raises(TimeoutError, late.wait, 0.05, says="it continues")
    comm.barrier()
    comm.send(np.array([5.0]), (rank - 1) % size, 11)
    same(late.wait(timeout=30), np.array([5.0]))
    anyone = np.empty(1)
    if rank == 0:
        assert sorted(comm.recv_any(anyone, 9) for _ in range(size - 1)) == list(range(1, size))
    else:
        comm.send(np.array([1.0]), 0, 9)
    requests = [comm.iall_gather(np.array([rank])), comm.ibarrier()]
    assert dlaunch.wait_any(requests) in (0, 1)
    same(dlaunch.wait_all(requests)[0], np.arange(size)[:, None])
    bufs = [of(rank, 4), of(rank, 0)]
    comm.broadcast_list(bufs, 1)
    same(bufs[0], of(1, 4))


def whatever_has_memory():
    total = float(sum(range(size)))
    for x in (array.array("d", [rank]), (ctypes.c_double * 1)(rank), np.float64(rank), memoryview(np.array([float(rank)]))):
        same(comm.all_reduce(x).reshape(1), np.array([total]))
    raw = bytearray([rank])
    assert comm.all_reduce(raw, out=raw) is raw and raw[0] == total
    same(comm.all_gather(b"abcd"), np.full((size, 4), list(b"abcd"), "uint8"))
    same(comm.all_reduce(np.empty((0, 3))), np.empty((0, 3)))
    same(comm.all_gather(np.empty(0)), np.empty((size, 0)))

    class Interface:
        def __init__(self, of_array):
            self.of_array, self.__array_interface__ = of_array, of_array.__array_interface__
    held = np.array([float(rank)])
    comm.all_reduce(Interface(held), out=Interface(held))
    same(held, np.array([total]))
    memory = comm.alloc(64)
    x = np.frombuffer(memory, "float64")
    x[:] = rank
    same(comm.all_reduce(x), np.full(8, total))
    raises(BufferError, comm.free, memory, says="still lie in this memory")
    del x
    comm.free(memory)
    raises(ValueError, comm.free, memory, says="has been freed")
    raises(BufferError, memoryview, memory)
    raises(BufferError, comm.all_reduce, memory, says="has been freed")
    # A request keeps what nobody else does.
    requests = [comm.iall_reduce(np.full(1000, float(rank)), out=np.empty(1000)) for _ in range(50)]
    for request in requests:
        same(request.wait(), np.full(1000, total))
        assert request.test() and request.wait() is request.wait()
    for _ in range(50):
        comm.iall_reduce(np.full(1000, float(rank)))  # dropped
    comm.barrier()
    grown = bytearray(64)
    request = comm.ibroadcast(grown)
    request.wait()
    grown.extend(b"more")  # it is free again


def halfway():
    """Complex arrays with NumPy's own alignment, that of their parts."""
    for dtype, part in (("complex64", 4), ("complex128", 8)):
        whole = 2 * part

        def placed(values):
            memory = np.empty(len(values) * whole + 2 * whole, "uint8")
            start = (part - memory.ctypes.data) % whole
            made = memory[start:start + len(values) * whole].view(dtype)
            assert made.ctypes.data % whole == part and made.flags.aligned
            made[:] = values
            return made
        all_of = [of(r, 1001) + 1j * of(10 + r, 1001) for r in range(size)]
        mine, out = placed(all_of[rank]), placed(np.zeros(1001))
        total, product = sum(all_of).astype(dtype), np.prod(all_of, axis=0).astype(dtype)
        same(comm.all_reduce(mine, out=out), total)
        same(comm.all_reduce(mine, "product", out=out), product)
        same(comm.all_reduce(mine, dlaunch.Op(np.add), out=out), total)
        same(comm.broadcast(placed(all_of[rank]), 1), all_of[1].astype(dtype))
        request = comm.isend(mine, (rank + 1) % size)
        same(comm.recv(out, (rank - 1) % size), all_of[rank - 1].astype(dtype))
        request.wait()
        unaligned = np.empty(4 * whole, "uint8")[1:1 + whole].view(dtype)
        raises(ValueError, comm.all_reduce, unaligned, says=f"not aligned to its {dtype} elements")


def mistakes():
    x, y = np.ones(4), np.ones((4, 4))
    frozen = np.ones(4)
    frozen.flags.writeable = False
    unaligned = np.frombuffer(bytearray(33), "uint8")[1:].view("float64")
    for bad in (y.T, x[::-1], x[::2], y[:, 1:], np.broadcast_to(1.0, (4,))):
        raises(ValueError, comm.all_reduce, bad, says="not C-contiguous")
    raises(ValueError, comm.all_reduce, unaligned, says="not aligned")
    raises(ValueError, comm.all_reduce, x, out=frozen, says="read-only")
    raises(ValueError, comm.all_reduce, b"1234", out=b"1234", says="read-only")
    raises(ValueError, comm.broadcast, frozen, (rank + 1) % size, says="read-only")
    raises(ValueError, comm.all_reduce, x, out=np.ones(5), says="5 elements, and needs 4")
    raises(TypeError, comm.all_reduce, x, out=np.ones(4, "float32"), says="has type float32")
    raises(ValueError, comm.reduce_scatter, np.ones(size + 1), says="cannot share evenly")
    raises(ValueError, comm.all_gather_v, x, [1] * size, says="counts must have")
    raises(ValueError, comm.reduce_scatter_v, x, [1] * (size + 1), says="a number for each of")
    raises(ValueError, comm.reduce_scatter_v, np.ones(size + 1), [1] * size, says="the sum of counts is")
    raises(ValueError, comm.all_to_all_v, np.ones(size), [1] * size, [2] * size, says="another number of elements")
    for bad in (None, 3, "text", [1.0], object(), np.array([object()]), np.array(["a"]), np.array([(1, 2.0)], "i4,f8"),
                np.ones(2, ">f8"), np.array(["2026-01-01"], "datetime64[D]")):
        raises(TypeError, comm.all_reduce, bad)
    raises(TypeError, comm.all_reduce, np.ones(3, bool), says="'sum' is not defined for bool")
    raises(TypeError, comm.all_reduce, np.ones(3, "int16"), says="int16")
    raises(ValueError, comm.all_reduce, x, "mean", says="'mean'")
    raises(TypeError, comm.all_reduce, x, 3, says="op must be a string")
    raises(TypeError, comm.all_reduce, says="needs its argument 'x'")
    raises(TypeError, comm.all_reduce, x, x=x, says="twice")
    raises(TypeError, comm.all_reduce, x, "sum", x, says="takes 2 arguments")
    raises(TypeError, comm.all_reduce, x, to=x, says="no argument 'to'")
    raises(dlaunch.InvalidError, comm.reduce, x, "sum", size, says="root")
    raises(OverflowError, comm.reduce, x, "sum", 1 << 40)
    raises(dlaunch.InvalidError, comm.send, x, rank, says="not another rank")
    raises(dlaunch.InvalidError, comm.all_reduce, x[:3], out=x[1:])
    raises(TypeError, dlaunch.Communicator)
    raises(TypeError, dlaunch.Communicator.all_reduce, 3, x)
    raises(TypeError, dlaunch.Request)
    raises(TypeError, dlaunch.wait_any, [3])
    raises(ValueError, dlaunch.wait_any, [])
    same(comm.all_reduce(x), np.full(4, float(size)))  # nothing of this has harmed it


def batches():
    """Calls of several kinds begin together at the end of a with statement; persistent calls repeat themselves."""
    to, source = (rank + 1) % size, (rank - 1) % size
    sums = [np.full(n, rank) for n in range(1, 30)]
    told, got = np.full(3, float(rank)), np.empty(5)
    with comm.batch():
        if rank % 2:
            comm.send(np.full(5, float(rank)), to)  # the batch keeps the array
        results = [comm.all_reduce(x) for x in sums]
        with comm.batch():
            comm.recv(got, source)
            largest = comm.all_reduce(np.full(2, float(rank)), dlaunch.Op(np.maximum))
        comm.broadcast(told, 1)
        everything = comm.all_gather(np.array([rank]))
        if rank % 2 == 0:
            comm.send(np.full(5, float(rank)), to)
        assert told[0] == rank
    for x, result in zip(sums, results):
        same(result, np.full(x.shape, sum(range(size))))
    same(told, np.ones(3))
    same(got, np.full(5, float(source)))
    same(largest, np.full(2, size - 1.0))
    same(everything, np.arange(size).reshape(size, 1))

    def batch(*calls):
        with comm.batch():
            for call in calls:
                call()
    untouched = np.zeros(2)
    first = lambda: comm.all_reduce(np.ones(2), out=untouched)
    raises(dlaunch.InvalidError, batch, first, lambda: comm.send(np.ones(1), rank), says="is not another rank")
    raises(dlaunch.InvalidError, batch, first, lambda: comm.iall_reduce(np.ones(1)), says="a batch is open")
    raises(dlaunch.InvalidError, batch, first, first, says="must not depend on each other")
    raises(ValueError, batch, first, lambda: comm.recv_any(np.ones(1)), says="not known before the end")
    raises(ZeroDivisionError, batch, first, lambda: 1 // 0)

    def inner_fails():
        try:
            batch(first, lambda: 1 // 0)
        except ZeroDivisionError:
            pass
    raises(dlaunch.InvalidError, batch, first, inner_fails, lambda: comm.barrier(), says="an inner batch was refused in it")

    def caught(call):
        try:
            call()
        except (TypeError, ValueError):
            return
        raise AssertionError("the call was not refused")
    lasting = comm.all_reduce_init(np.zeros(1))
    for name, call in {"all_reduce": lambda: comm.all_reduce("text"), "broadcast": lambda: comm.broadcast(),
                       "iall_reduce": lambda: comm.iall_reduce("text"), "recv_any": lambda: comm.recv_any(np.ones(1)),
                       "run": lasting.run}.items():
        says = {"iall_reduce": "all_reduce", "run": "all_reduce"}.get(name, name) + " was refused in it"
        raises(dlaunch.InvalidError, batch, first, lambda: caught(call), says=says)
        with comm.batch():  # the refusal ends with its batch
            comm.barrier()
    same(untouched, np.zeros(2))

    x, out, y = np.zeros(3), np.zeros(3), np.zeros(2)
    calls = [comm.all_reduce_init(x, out=out), comm.broadcast_init(y, 2), comm.barrier_init(),
             comm.all_reduce_init(x, dlaunch.Op(np.minimum)), comm.all_gather_init(y)]
    for step in range(50):
        x[:], y[:] = rank + step, rank * step
        got = [call.run() for call in calls]
        same(out, np.full(3, float(sum(range(size)) + size * step)))
        assert got[0] is out and got[1] is y and got[2] is None
        same(y, np.full(2, 2.0 * step))
        same(got[3], np.full(3, float(step)))
        same(got[4], np.full((size, 2), 2.0 * step))
    raises(ValueError, batch, calls[0].run, says="cannot be in a batch")
    raises(dlaunch.InvalidError, comm.broadcast_init, y, size)
    raises(TypeError, comm.all_reduce_init, "text")


def groups_and_keys():
    half = comm.split(rank % 2, -rank)
    assert half.size == len(range(rank % 2, size, 2))
    same(half.all_reduce(np.array([rank])), np.array([sum(range(rank % 2, size, 2))]))
    assert comm.split(None if rank else 0) is None or rank == 0
    if rank < 2:
        pair = comm.group([1, 0])
        assert pair.rank == 1 - rank
        pair.barrier()
        pair.finalize()
        pair.finalize()
        assert pair.closed
        for call in (pair.barrier, pair.abort, lambda: pair.transport, lambda: pair.all_reduce(np.ones(1))):
            raises(dlaunch.Error, call, says="has been finalized")
    comm.key_set(f"at {rank}", b"\0value" * 2000)
    assert comm.key_get(f"at {(rank + 1) % size}") == b"\0value" * 2000
    raises(TimeoutError, comm.key_get, "nowhere", 0)
    comm.key_add("sum", rank)
    comm.barrier()
    assert comm.key_add("sum", 0) == sum(range(size))
    assert comm.explain("all_reduce", 10, "float32") != ""
    raises(dlaunch.InvalidError, comm.explain, "all_reduce", 10, "float7")


def threads_and_children():
    pairs = [comm.split(0) for _ in range(2)]
    done, told = threading.Event(), []

    def other():
        while not done.is_set():
            try:
                pairs[0].rank, pairs[0].transport
                if rank == 0:
                    pairs[0].finalize()
            except dlaunch.Error as error:
                told.append(str(error))
    thread = threading.Thread(target=other)
    if rank == 0:  # waits for the others, and a second thread comes meanwhile
        request = pairs[1].ibarrier()
        thread.start()
        try:
            pairs[0].recv(np.empty(1), 1)
        except dlaunch.Error as error:  # the second thread was first
            told.append(str(error))
        done.set()
        thread.join()
        request.wait()
        assert told, "nobody was refused"
    else:
        pairs[1].barrier()
        if rank == 1:
            try:
                pairs[0].send(np.ones(1), 0)
            except dlaunch.Error:
                pass
    comm.barrier()
    child = os.fork()
    if child == 0:
        kinds = (dlaunch.Error,)
        raises(kinds, comm.barrier)
        raises(kinds, comm.all_reduce, np.ones(1))
        raises(kinds, comm.abort)
        comm.finalize()
        alone = dlaunch.init("file:///nowhere-needed", rank=0, size=1)
        same(alone.all_reduce(np.ones(1)), np.ones(1))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    comm.barrier()


PARTS = (reductions, small_floats, own_operations, own_errors, own_functions_end, moves, whatever_has_memory,
         halfway, mistakes, batches, groups_and_keys, threads_and_children)
for part in PARTS:
    outcome = part() or "is right"
    comm.barrier()
    if rank == 0:
        print(part.__name__, outcome, flush=True)

if len(sys.argv) > 1 and rank == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
if len(sys.argv) > 1:
    lost = raises(dlaunch.PeerLost, comm.all_reduce, np.ones(1 << 16), says=f"rank {sys.argv[1]}")
    assert lost.rank == comm.peer_lost == int(sys.argv[1])
    assert raises(dlaunch.PeerLost, comm.ibarrier).rank == lost.rank
    print(f"rank {rank} got PeerLost", flush=True)
comm.finalize()

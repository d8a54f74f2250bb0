"""Carries out the coordinator's responses: collectives of libdlring on the arrays that this rank submitted.

An Entry is one submitted collective. A rank that has joined has no entry, and takes part with zeros.
"""

import math
import threading

from .._errors import InvalidError, Unsupported
from ._errors import HorovodInternalError

OWN_MISTAKES = (InvalidError, Unsupported, TypeError, ValueError)  # every rank raises these alike, before a call
_ADASUM = 4  # a tag
OPS = {"Average": "avg", "Sum": "sum", "Min": "min", "Max": "max", "Product": "product"}


class Entry:
    """arrays: the operations, as of _arrays. inputs: arrays in the host's memory, contiguous. outputs: existing places
    for results; the same arrays as inputs for a call in place. finish(results): makes the call's return value, on the
    waiting thread. request: the request for the coordinator."""

    def __init__(self, request, arrays=None, inputs=(), outputs=None, finish=None):
        self.request, self.arrays, self.inputs, self.outputs = request, arrays, list(inputs), outputs
        self.key = request["set"], request["kind"], request["name"]
        self._finish = finish or (lambda results: None)
        self._done = threading.Event()
        self._results = self._error = None

    def complete(self, results=None, error=None):
        self._results, self._error = results, error
        self.inputs = self.outputs = None
        self._done.set()

    def poll(self):
        return self._done.is_set()

    def wait(self):
        self._done.wait()
        if self._error is not None:
            text, cause = self._error
            raise HorovodInternalError(text) from cause
        if self._finish is not None:
            self._results, self._finish = self._finish(self._results), None
        return self._results


class Executor:
    """comm: of all ranks. arrays: for zeros, after this rank has joined. One thread at a time."""

    def __init__(self, comm, arrays):
        self._arrays = arrays
        self._groups = {0: comm}

    def run(self, response, entries):
        """entries: this rank's, by response["names"]; None if it has joined. Returns their results."""
        return getattr(self, "_" + response["do"])(response, self._groups.get(response["set"]), entries)

    def abort(self):
        """Any thread."""
        for comm in list(self._groups.values()):
            comm.abort()

    def finalize_groups(self):
        for number in [number for number in self._groups if number != 0]:
            self._groups.pop(number).finalize()

    # -- Reductions.

    def _allreduce(self, response, comm, entries):
        outputs = self._places(response, entries)
        if response["op"] == "Adasum":
            return self._adasum(response, comm, entries, outputs)
        inputs = [self._inputs(entry, out) for entry, out in zip(entries, outputs)]
        factor = self._before(response, entries, inputs, outputs)
        op, after = _op_and_factor(response, len(response["members"]), factor)
        for pairs in _by_type(response, zip(_flat(inputs), _flat(outputs))):
            if len(pairs) == 1:
                comm.all_reduce(pairs[0][0], op, out=pairs[0][1])
            else:
                comm.all_reduce_list([x for x, _ in pairs], op, out=[out for _, out in pairs])
        self._after(entries, outputs, after)
        return outputs

    def _places(self, response, entries):
        """The places of the results, by entry."""
        places, at = [], 0
        for entry, count in zip(entries, _parts(response)):
            tensors = response["tensors"][at:at + count]
            places.append([self._arrays.zeros(shape, dtype) for dtype, shape in tensors] if entry is None else
                          entry.outputs)
            at += count
        return places

    @staticmethod
    def _inputs(entry, outputs):
        return outputs if entry is None else entry.inputs

    def _before(self, response, entries, inputs, outputs):
        """Scales by prescale_factor, into the places of the results. Returns postscale_factor."""
        if response["pre"] != 1:
            for i, entry in enumerate(entries):
                for x, out in zip(inputs[i], outputs[i]):
                    if x is not out:
                        out[...] = x
                    self._of(entry).scale(out, response["pre"])
                inputs[i] = outputs[i]
        return response["post"]

    def _after(self, entries, outputs, factor):
        if factor != 1:
            for entry, results in zip(entries, outputs):
                for out in results:
                    self._of(entry).scale(out, factor)

    def _of(self, entry):
        return self._arrays if entry is None else entry.arrays

    def _adasum(self, response, comm, entries, outputs):
        """Sums that account for the angle between gradients: x and y become (1 - x.y / 2|x|^2) x + (1 - x.y / 2|y|^2)
        y, pair by pair of ranks, then of pairs."""
        size, me = len(response["members"]), response["members"].index(response["rank"])
        if size & (size - 1):
            raise Unsupported(f"op=Adasum needs a number of ranks that is a power of 2, and there are {size}")
        inputs = [self._inputs(entry, out) for entry, out in zip(entries, outputs)]
        after = self._before(response, entries, inputs, outputs)
        for entry, xs, outs in zip(entries, inputs, outputs):
            for x, out in zip(xs, outs):
                out[...] = _adasum_of(comm, self._of(entry), x, me, size)
        self._after(entries, outputs, after)
        return outputs

    def _reducescatter(self, response, comm, entries):
        size, me = len(response["members"]), response["members"].index(response["rank"])
        entry, = entries
        arrays, results = self._of(entry), []
        for i, (dtype, shape) in enumerate(response["tensors"]):
            x = arrays.zeros(shape, dtype) if entry is None else entry.inputs[i]
            rows, larger = divmod(shape[0], size)
            op, after = _op_and_factor(response, size, response["post"])
            if response["pre"] != 1:
                given, x = x, arrays.empty(shape, dtype)
                x[...] = given
                arrays.scale(x, response["pre"])
            counts = [(rows + (rank < larger)) * math.prod(shape[1:]) for rank in range(size)]
            out = arrays.empty([rows + (me < larger), *shape[1:]], dtype)
            comm.reduce_scatter_v(x, counts, op, out=out)
            if after != 1:
                arrays.scale(out, after)
            results.append(out)
        return [results]

    # -- Movements.

    def _allgather(self, response, comm, entries):
        entry, = entries
        arrays, results = self._of(entry), []
        for i, (dtype, shape) in enumerate(response["tensors"]):
            rows, tail = response["rows"][i], shape[1:]
            x = arrays.empty([0, *tail], dtype) if entry is None else entry.inputs[i]
            out = arrays.empty([sum(rows), *tail], dtype)
            comm.all_gather_v(arrays.plain(x), [count * math.prod(tail) for count in rows], out=arrays.plain(out))
            results.append(out)
        return [results]

    def _broadcast(self, response, comm, entries):
        root = response["members"].index(response["root"])
        outputs = self._places(response, entries)
        if response["rank"] == response["root"]:
            for entry, outs in zip(entries, outputs):
                for x, out in zip(entry.inputs, outs):
                    if x is not out:
                        out[...] = x
        moved = (self._of(entry).plain(out) for entry, outs in zip(entries, outputs) for out in outs)
        for tensors in _by_type(response, moved):
            comm.broadcast_list(tensors, root)
        return outputs

    def _alltoall(self, response, comm, entries):
        entry, = entries
        (dtype, shape), rows, arrays = response["tensors"][0], response["rows"], self._of(entry)
        me = response["members"].index(response["rank"])
        received, sent = [splits[me] for splits in rows], rows[me]
        x = arrays.empty([0, *shape[1:]], dtype) if entry is None else entry.inputs[0]
        out = arrays.empty([sum(received), *shape[1:]], dtype)
        if len({count for splits in rows for count in splits}) == 1:
            comm.all_to_all(arrays.plain(x), out=arrays.plain(out))
        else:
            each = math.prod(shape[1:])
            comm.all_to_all_v(arrays.plain(x), [count * each for count in sent],
                              [count * each for count in received], out=arrays.plain(out))
        return [[out, received]]

    def _barrier(self, response, comm, entries):
        return [None]

    # -- Process sets.

    def _add_set(self, response, comm, entries):
        number, ranks = response["id"], response["ranks"]
        if response["rank"] in ranks and number not in self._groups:
            self._groups[number] = comm.group(ranks, tag=number)
        return [number]

    def _remove_set(self, response, comm, entries):
        group = self._groups.pop(response["id"], None) if response["removed"] else None
        if group is not None:
            group.finalize()
        return [response["removed"]]


def _parts(response):
    return response.get("parts", [len(response["tensors"])])


def _flat(lists):
    return (x for xs in lists for x in xs)


def _by_type(response, things):
    """Groups the things, one for each tensor of the response, by the type of their tensors."""
    lists = {}
    for (dtype, _), thing in zip(response["tensors"], things):
        lists.setdefault(dtype, []).append(thing)
    return list(lists.values())


def _op_and_factor(response, size, post):
    """libdlring's op, and the factor for its result."""
    if response["op"] == "Average" and (response["pre"] != 1 or post != 1):
        return "sum", post / size
    return OPS[response["op"]], post


def _adasum_of(comm, arrays, x, me, size):
    distance = 1
    while distance < size:
        peer = me ^ distance
        theirs = arrays.empty(x.shape, arrays.name_of(x))
        request = comm.irecv(theirs, peer, _ADASUM)
        comm.isend(x, peer, _ADASUM).wait()
        request.wait()
        first, second = (x, theirs) if me < peer else (theirs, x)  # both ranks get the same bits
        both = arrays.dot(first, second)
        squares = arrays.dot(first, first), arrays.dot(second, second)
        a, b = (1 - both / (2 * square) if square > 0 else 1.0 for square in squares)
        x = arrays.add_scaled(a, first, b, second)
        distance *= 2
    return x

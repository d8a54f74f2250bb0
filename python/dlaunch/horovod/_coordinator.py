"""Decides which collectives run, and in which order. Rank 0 has one Coordinator.

Ranks submit collectives by name, each in its own order. The coordinator collects these requests, and answers with
responses: a collective is ready when every member of its process set has submitted its name. All ranks carry out the
responses in the coordinator's order, so they make the same calls.

It is pure: it reads no clock and does no I/O. request() takes a rank's request, take(now) returns the responses that
are due, and deadline() says when to call take() without a new request. Requests and responses are dicts of plain
values, as in JSON. See `request()` and `_response()` for their fields.
"""

import math

FUSED = ("allreduce", "broadcast")            # small ones of these kinds run together
_PARAMETERS = ("op", "pre", "post", "root")   # the ranks must agree on these


class Settings:
    """fusion_bytes: the largest total of tensors that run together. warn_after, end_after: seconds until a tensor that
    some rank does not submit causes a warning, or ends all ranks; 0: never."""

    def __init__(self, fusion_bytes=128 << 20, warn_after=60.0, end_after=0.0):
        self.fusion_bytes, self.warn_after, self.end_after = fusion_bytes, warn_after, end_after


class _Pending:
    """A collective that only some ranks have submitted."""

    def __init__(self, now):
        self.since, self.warned = now, now
        self.by_rank = {}


class Coordinator:
    def __init__(self, size, settings):
        self._size, self._settings = size, settings
        self.sets = {0: list(range(size))}
        self._next_set = 1
        self._pending = {}     # (set, kind, name): _Pending, in the order of their first submission
        self._ready = []       # responses
        self._joined = []      # ranks, in the order of joining
        self._over = False
        self.warnings = []     # for rank 0 to print; the caller empties it

    def request(self, now, rank, request):
        """Takes a request of a rank:

        kind: allreduce, allgather, broadcast, alltoall, reducescatter, barrier, join, add_set, remove_set, shutdown.
        set: the number of the process set; 0: all ranks. name. tensors: [dtype, shape] of each.
        op, pre, post, root: where the kind has them. splits: alltoall's. ranks: of add_set.
        at_exit: of shutdown, whether the rank's program ends."""
        if self._over:
            return
        kind = request["kind"]
        if kind == "shutdown":
            if request.get("at_exit"):
                self._end(f"the program of rank {rank} has ended", gone=rank)
            else:
                self._end(f"rank {rank} has shut Horovod down")
        elif kind == "join":
            self._joined.append(rank)
            for key in list(self._pending):
                if key in self._pending:  # a remove_set before it takes away what is pending in the set
                    self._complete(key)
            if len(self._joined) == self._size:
                self._ready.append({"do": "joined", "last": rank})
                self._joined = []
        else:
            key = request["set"], kind, request["name"]
            if request["set"] not in self.sets:
                self._ready.append(_failed(key, [rank], f"the process set {request['set']} was removed"))
                return
            self._pending.setdefault(key, _Pending(now)).by_rank[rank] = request
            self._complete(key)

    def take(self, now):
        """Returns the due responses, fused."""
        self._look_for_stalls(now)
        ready, self._ready = self._ready, []
        return _fuse(ready, self._settings.fusion_bytes)

    def deadline(self):
        """When to call take() without a new request; None: no such time."""
        times = [due for due in map(self._next_look, self._pending.values()) if due is not None]
        return min(times) if times and not self._over else None

    # -- Readiness.

    def _complete(self, key):
        pending, members = self._pending[key], self.sets[key[0]]
        if any(rank not in pending.by_rank and rank not in self._joined for rank in members):
            return
        del self._pending[key]
        error = disagreement(key, pending.by_rank, self._joined)
        if error is None:
            self._ready.append(self._response(key, pending.by_rank, members))
        else:
            self._ready.append(_failed(key, members, error))

    def _response(self, key, by_rank, members):
        """The work of the members of the set:

        do: the kind, or joined, error, shutdown. set, names, tensors: as submitted; allgather, alltoall: shapes without
        the first dimension. rows: of allgather, the first dimensions by tensor and member; of alltoall, the splits of
        each member. id: of add_set, the new number. last: of joined. text: of error and shutdown.
        gone: of shutdown, the rank whose program has ended."""
        number, kind, name = key
        first = next(iter(by_rank.values()))
        response = {"do": kind, "set": number, "names": [name], "members": members, "tensors": first.get("tensors", [])}
        response.update((what, first[what]) for what in _PARAMETERS if what in first)
        if kind == "allgather":
            response["rows"] = [[by_rank[rank]["tensors"][i][1][0] if rank in by_rank else 0 for rank in members]
                                for i in range(len(first["tensors"]))]
        elif kind == "alltoall":
            response["rows"] = [by_rank[rank]["splits"] if rank in by_rank else [0] * len(members) for rank in members]
        elif kind == "add_set":
            response["ranks"], response["id"] = first["ranks"], self._add_set(first["ranks"])
        elif kind == "remove_set":
            response["id"] = first["id"]
            response["removed"] = self._remove_set(first["id"])
        return response

    def _add_set(self, ranks):
        for number, known in self.sets.items():
            if known == ranks:
                return number
        self.sets[self._next_set] = ranks
        self._next_set += 1
        return self._next_set - 1

    def _remove_set(self, number):
        if number == 0 or number not in self.sets:
            return False
        members = self.sets.pop(number)
        for key in [key for key in self._pending if key[0] == number]:
            self._ready.append(_failed(key, members, f"the process set {number} was removed"))
            del self._pending[key]
        return True

    def _end(self, text, **more):
        self._over = True
        self._pending.clear()
        self._ready.append({"do": "shutdown", "text": text, **more})

    # -- Tensors that some rank does not submit.

    def _next_look(self, pending):
        """When to warn about this one."""
        settings = self._settings
        warn = pending.warned + settings.warn_after if settings.warn_after > 0 else math.inf
        end = pending.since + settings.end_after if settings.end_after > 0 else math.inf
        return None if min(warn, end) == math.inf else min(warn, end)

    def _look_for_stalls(self, now):
        settings = self._settings
        for key, pending in list(self._pending.items()):
            due = self._next_look(pending)
            if due is None or now < due:
                continue
            pending.warned = now
            there = sorted(pending.by_rank)
            missing = [rank for rank in self.sets[key[0]] if rank not in there and rank not in self._joined]
            text = (f"{key[1]} of '{key[2]}' waits for {now - pending.since:.0f} s: {_ranks(there)} submitted it, "
                    f"and {_ranks(missing)} did not")
            if 0 < settings.end_after <= now - pending.since:
                self._end(text)
                return
            self.warnings.append(text)


# -- Agreement.


def disagreement(key, by_rank, joined=()):
    """A sentence that names the tensor and the ranks, or None if all requests agree."""
    _, kind, name = key
    if kind == "barrier":
        return None
    for what, of in _aspects(kind):
        values = {}
        for rank in sorted(by_rank):
            values.setdefault(of(by_rank[rank]), []).append(rank)
        if len(values) > 1:
            said = "; ".join(f"{_ranks(ranks)}: {value}" for value, ranks in values.items())
            return f"{kind} of '{name}': the ranks disagree on the {what}: {said}"
    root = next(iter(by_rank.values())).get("root")
    if root in joined and root not in by_rank:
        return f"{kind} of '{name}': its root, rank {root}, has joined"
    return None


def _aspects(kind):
    """What the ranks must agree on: (its name, how to read it from a request)."""
    if kind in ("add_set", "remove_set"):
        field = "ranks" if kind == "add_set" else "id"
        return [("process set", lambda request: str(request[field]))]
    whole = kind not in ("allgather", "alltoall")  # or: without the first dimension

    def shapes(request):
        shown = [shape if whole else ["any", *shape[1:]] for _, shape in request["tensors"]]
        return ", ".join("[" + ", ".join(map(str, shape)) + "]" for shape in shown)
    aspects = [("number of tensors", lambda request: len(request["tensors"])),
               ("type", lambda request: ", ".join(dtype for dtype, _ in request["tensors"])),
               ("shape", shapes)]
    for what, word in zip(_PARAMETERS, ("reduction op", "prescale_factor", "postscale_factor", "root rank")):
        aspects.append((word, lambda request, what=what: request.get(what)))
    return aspects


def _ranks(ranks):
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _failed(key, members, text):
    number, kind, name = key
    return {"do": "error", "kind": kind, "set": number, "names": [name], "members": members, "text": text}


# -- Fusion.


_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
          "uint32": 4, "float32": 4, "complex128": 16}


def bytes_of(tensors):
    return sum(_BYTES.get(dtype, 8) * math.prod(shape) for dtype, shape in tensors)


def _fuse(ready, limit):
    """Joins small collectives of one kind, type and so on into one. Those that were ready first stay first; other
    responses keep their places."""
    fused, open_ones = [], {}
    for response in ready:
        types = {dtype for dtype, _ in response.get("tensors", ())}
        if response["do"] not in FUSED or len(types) != 1:
            open_ones.clear()
            fused.append(response)
            continue
        key = (response["do"], response["set"], *types, *(response.get(what) for what in _PARAMETERS))
        size = bytes_of(response["tensors"])
        into, used = open_ones.get(key, (None, 0))
        if into is None or used + size > limit:
            into = {**response, "names": [], "tensors": [], "parts": []}
            fused.append(into)
            used = 0
        into["names"] += response["names"]
        into["tensors"] = into["tensors"] + response["tensors"]
        into["parts"].append(len(response["tensors"]))
        open_ones[key] = into, used + size
    return fused

"""The data that each rank of an elastic state has for itself: its part of sharded tensors (DTensors, as FSDP2, HSDP and
tensor parallel make them of parameters and optimizers) and the state of its random numbers.

Each commit packs them into one block of bytes, and libdlelastic keeps copies on the next ranks. The block says where
each piece belongs in the whole tensor, so that all blocks together can be cut in any other way:

        two numbers of 8 bytes: the length of the block, and the length of the head
    head: pickled, {"rank", "tensors": {key: (dtype, shape, [(offsets, sizes, at)])}, "values", "random"}
    pieces, each at a multiple of 16 bytes

A rank may have several blocks, if there are fewer ranks than before.
"""

import copy
import pickle
import random
import struct
import sys

import torch
import torch.distributed as dist

from .._arrays import bytes_of

_WORDS = struct.Struct("<QQ")
_ROUND = 1024  # heads are padded to multiples of it, so that a block keeps its size when a number grows


# -- Random numbers.


def random_state():
    """The state for Python, torch, NumPy if it is in use, and this process's GPU if it has one."""
    version, words, gauss = random.getstate()
    state = {"python": (version, struct.pack(f"<{len(words)}Q", *words), gauss),
             "torch": bytes_of(torch.get_rng_state())}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = (kind, keys.tobytes(), *rest)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = bytes_of(torch.cuda.get_rng_state())
    return state


def set_random_state(state):
    version, words, gauss = state["python"]
    random.setstate((version, struct.unpack(f"<{len(words) // 8}Q", words), gauss))
    torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
    if "numpy" in state:
        import numpy
        kind, keys, *rest = state["numpy"]
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.frombuffer(bytearray(state["cuda"]), dtype=torch.uint8))


# -- Tensors, whole or sharded.


def is_sharded(tensor):
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "to_local")


def _local(tensor):
    """(offsets, sizes, memory) of this rank's part; None: it has none."""
    if not is_sharded(tensor):
        return (0,) * tensor.dim(), tuple(tensor.shape), tensor.detach()
    chunks = tensor.__create_chunk_list__()
    if len(chunks) != 1:
        raise ValueError("a DTensor with several pieces on a rank cannot be part of an elastic state")
    memory = tensor._local_tensor.detach()
    sizes = tuple(chunks[0].sizes)
    if tuple(memory.shape) != sizes:
        raise ValueError(f"a DTensor whose piece is {list(memory.shape)} and not {list(sizes)} cannot be part of an "
                         "elastic state")
    return (tuple(chunks[0].offsets), sizes, memory) if memory.numel() else None


def dtype_of(name):
    return getattr(torch, name.rpartition(".")[2])


class ShardedParts:
    """The arguments of state.sharded(), by name: modules, optimizers and other objects with state_dict()."""

    def __init__(self, parts):
        self.modules, self.optimizers, self.others, self.names = {}, {}, {}, {}
        for name, part in parts.items():
            if isinstance(part, torch.nn.Module):
                self.modules[name] = part
            elif isinstance(part, torch.optim.Optimizer):
                self.optimizers[name] = part
            elif hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
                self.others[name] = part
            else:
                raise TypeError(f"{name}: it is no module, no optimizer and has no state_dict()")
        self._name_parameters()

    def _name_parameters(self):
        for module in self.modules.values():
            for key, parameter in module.state_dict(keep_vars=True).items():
                if isinstance(parameter, torch.nn.Parameter):
                    self.names.setdefault(id(parameter), key)
        for name, optimizer in self.optimizers.items():
            self._check(name, optimizer)

    def with_others(self, others):
        return ShardedParts({**self._all(), **others._all()})

    def those_in(self, names):
        """The parts with these names. Parameters keep their names."""
        some = copy.copy(self)
        some.modules = {name: part for name, part in self.modules.items() if name in names}
        some.optimizers = {name: part for name, part in self.optimizers.items() if name in names}
        some.others = {name: part for name, part in self.others.items() if name in names}
        return some

    def _all(self):
        return {**self.modules, **self.optimizers, **self.others}

    def _check(self, name, optimizer):
        seen = set()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                key = self.names.get(id(parameter))
                if key is None:
                    raise ValueError(f"{name}: it has a parameter that belongs to none of the given modules")
                if key in seen:
                    raise ValueError(f"{name}: two of its parameters are called {key}: take an optimizer for each "
                                     "module")
                seen.add(key)

    def _parameters(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield self.names[id(parameter)], parameter

    def tensors(self):
        """All existing tensors, by their keys in a folder of torch.distributed.checkpoint."""
        found = {}
        for name, module in self.modules.items():
            for key, value in module.state_dict().items():  # sharded again if FSDP has gathered it
                if torch.is_tensor(value):
                    found[f"{name}.{key}"] = value
        for name, optimizer in self.optimizers.items():
            for key, parameter in self._parameters(optimizer):
                for what, value in optimizer.state.get(parameter, {}).items():
                    if torch.is_tensor(value):
                        found[f"{name}.state.{key}.{what}"] = value
        return found

    def values(self):
        """The other values, which can be pickled."""
        found = {name: other.state_dict() for name, other in self.others.items()}
        for name, optimizer in self.optimizers.items():
            groups = [{key: value for key, value in group.items() if key != "params"}
                      for group in optimizer.param_groups]
            states = {key: {what: value for what, value in optimizer.state.get(parameter, {}).items()
                            if not torch.is_tensor(value)} for key, parameter in self._parameters(optimizer)}
            found[name] = groups, states
        return found

    def make(self, described):
        """described: {key: (dtype, shape)}. The tensors to fill with that, by key; makes those of optimizers."""
        here = self.tensors()
        for name, optimizer in self.optimizers.items():
            for key, parameter in self._parameters(optimizer):
                optimizer.state.pop(parameter, None)
                front = f"{name}.state.{key}."
                state = {full[len(front):]: self._like(full, parameter, *described[full])
                         for full in described if full.startswith(front)}
                if state:
                    optimizer.state[parameter].update(state)
        wanted = self.tensors()
        missing = sorted(key for key in here if key not in described and key in wanted)
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ValueError(f"the folder lacks {missing[0]}{more}")
        for key, tensor in wanted.items():
            dtype, shape = described[key]
            if tuple(tensor.shape) != tuple(shape) or str(tensor.dtype) != dtype:
                raise ValueError(f"{key} is {tensor.dtype} {list(tensor.shape)}, and the folder has {dtype} "
                                 f"{list(shape)}")
        return wanted

    @staticmethod
    def _like(key, parameter, dtype, shape):
        if tuple(shape) == tuple(parameter.shape):
            return torch.zeros_like(parameter, dtype=dtype_of(dtype), requires_grad=False)
        if shape and is_sharded(parameter):
            raise ValueError(f"{key} has another shape than its parameter: such an optimizer cannot be resharded")
        # Counters of steps are on the CPU, as optimizers have them.
        return torch.zeros(tuple(shape), dtype=dtype_of(dtype))

    def set_values(self, values):
        for name, other in self.others.items():
            if name in values:
                other.load_state_dict(values[name])
        for name, optimizer in self.optimizers.items():
            groups, states = values[name]
            for group, saved in zip(optimizer.param_groups, groups):
                group.update(saved)
            for key, parameter in self._parameters(optimizer):
                if states.get(key):
                    optimizer.state[parameter].update(states[key])


# -- Blocks.


class Block:
    """The registered block, which each commit rewrites."""

    def __init__(self):
        self.memory = None
        self._head_room = 0

    def write(self, rank, parts, with_random):
        head = {"rank": rank, "tensors": {}, "values": {}, "random": random_state() if with_random else None}
        pieces, at = [], 0
        if parts is not None:
            head["values"] = parts.values()
            for key, tensor in parts.tensors().items():
                local = _local(tensor)
                places = []
                if local is not None:
                    places.append((*local[:2], at))
                    pieces.append((at, local[2]))
                    at += -(-local[2].numel() * local[2].element_size() // 16) * 16
                head["tensors"][key] = str(tensor.dtype), tuple(tensor.shape), places
        try:
            pickled = pickle.dumps(head, protocol=4)
        except Exception as error:
            raise ValueError(f"an argument of sharded() cannot be pickled: {error}") from error
        room = -(-(len(pickled) + _WORDS.size) // _ROUND) * _ROUND
        if self.memory is None or self._head_room != room or self.memory.numel() != room + at:
            self.memory = torch.zeros(room + at, dtype=torch.uint8)
            self._head_room = room
        head_bytes = _WORDS.pack(room + at, room) + pickled
        self.memory[:len(head_bytes)] = torch.frombuffer(bytearray(head_bytes), dtype=torch.uint8)
        for at, memory in pieces:
            size = memory.numel() * memory.element_size()
            there = self.memory[room + at:room + at + size].view(memory.dtype)
            there.view(memory.shape).copy_(memory)


def blocks_of(memory):
    """memory: a uint8 tensor of blocks, one after the other. Yields (head, the bytes of its pieces) for each."""
    at, found = 0, []
    while at < memory.numel():
        whole, head = _WORDS.unpack(bytes_of(memory[at:at + _WORDS.size]))
        pickled = bytes_of(memory[at + _WORDS.size:at + head])
        found.append((pickle.loads(pickled), memory[at + head:at + whole]))
        at += whole
    return found


def as_memory(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def _overlap(offsets, sizes, other_offsets, other_sizes):
    """The overlap of two boxes: its beginning in each, and its size; None: there is none."""
    first = [max(a, b) for a, b in zip(offsets, other_offsets)]
    end = [min(a + n, b + m) for a, n, b, m in zip(offsets, sizes, other_offsets, other_sizes)]
    if any(a >= b for a, b in zip(first, end)):
        return None
    return ([a - b for a, b in zip(first, offsets)], [a - b for a, b in zip(first, other_offsets)],
            [b - a for a, b in zip(first, end)])


def _cut(tensor, begin, size):
    for dim, (first, count) in enumerate(zip(begin, size)):
        tensor = tensor.narrow(dim, first, count)
    return tensor


def fill(tensors, blocks):
    """Fills these tensors of this rank with their data from the blocks."""
    for head, memory in blocks:
        for key, (dtype, _, places) in head["tensors"].items():
            own = _local(tensors[key]) if key in tensors else None
            if own is None:
                continue
            for offsets, sizes, at in places:
                common = _overlap(own[0], own[1], offsets, sizes)
                if common is None:
                    continue
                count = 1
                for size in sizes:
                    count *= size
                kind = dtype_of(dtype)
                bytes_each = torch.empty((), dtype=kind).element_size()
                piece = memory[at:at + count * bytes_each].view(kind).view(sizes)
                _cut(own[2], common[0], common[2]).copy_(_cut(piece, common[1], common[2]))


def covers(tensors, head):
    """Whether the block has exactly this rank's parts."""
    for key, tensor in tensors.items():
        own = _local(tensor)
        places = head["tensors"][key][2]
        if (own is None) != (not places) or own is not None and own[:2] != tuple(map(tuple, places[0][:2])):
            return False
    return True


def described(blocks):
    return {key: (dtype, shape) for head, _ in blocks for key, (dtype, shape, _) in head["tensors"].items()}


def blocks_by_rank(own):
    """Collective: every rank's memory of blocks, the last rank's first, one at a time."""
    for source in reversed(range(dist.get_world_size())):
        size = torch.tensor([own.numel()])
        dist.broadcast(size, source)
        memory = own if source == dist.get_rank() else torch.zeros(int(size), dtype=torch.uint8)
        if memory.numel():
            dist.broadcast(memory, source)
        yield blocks_of(memory)

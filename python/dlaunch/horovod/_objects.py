"""Python objects to other ranks: pickled, by cloudpickle where it is installed."""

import io
import pickle

from ._world import world


def dumps(thing):
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(thing)
    return cloudpickle.dumps(thing)


def broadcast_object(arrays, obj, root_rank, name, process_set):
    """The object of rank root_rank, on every rank of the process set."""
    name = world.name(("broadcast_object", world.number_of(process_set)), name)
    mine = world.rank() == root_rank
    data = dumps(obj) if mine else b""
    size = arrays.from_bytes(len(data).to_bytes(8, "little"))
    size = _broadcast(arrays, size, root_rank, name + ".size", process_set)
    count = int.from_bytes(arrays.to_bytes(size), "little")
    content = arrays.from_bytes(data) if mine else arrays.empty([count], "uint8")
    content = _broadcast(arrays, content, root_rank, name + ".content", process_set)
    return obj if mine else pickle.load(io.BytesIO(arrays.to_bytes(content)))


def _broadcast(arrays, x, root_rank, name, process_set):
    request = {"tensors": [[arrays.name_of(x), list(x.shape)]], "root": root_rank}
    out = arrays.empty(x.shape, arrays.name_of(x))
    return world.submit("broadcast", name, process_set, request=request, arrays=arrays, inputs=[x], outputs=[out],
                        finish=lambda results: results[0]).wait()


def allgather_object(arrays, obj, name, process_set):
    """The objects of all ranks of the process set, in their order."""
    name = world.name(("allgather_object", world.number_of(process_set)), name)
    data = dumps(obj)
    sizes = _gathered(arrays, len(data).to_bytes(8, "little"), name + ".size", process_set)
    content = io.BytesIO(_gathered(arrays, data, name + ".content", process_set))
    return [pickle.loads(content.read(int.from_bytes(sizes[i:i + 8], "little"))) for i in range(0, len(sizes), 8)]


def _gathered(arrays, data, name, process_set):
    request = {"tensors": [["uint8", [len(data)]]]}
    x = arrays.from_bytes(data)
    return world.submit("allgather", name, process_set, request=request, arrays=arrays, inputs=[x],
                        finish=lambda results: arrays.to_bytes(results[0])).wait()

"""Collectives on tensors. Names are Horovod's; help(dlaunch.horovod) says what differs.

Functions with _async return a handle at once, for poll() and synchronize(). Functions with _ at the end put the result
into the tensor itself. Ranks may submit in any order: a collective runs when all ranks of its process set have
submitted its name. Without name= the n-th call of a kind matches the n-th one on other ranks.

average=True and False are old words for op=Average and Sum. prescale_factor and postscale_factor multiply the tensor
before and after the reduction. root_rank is a rank of the job, also within a process set.
"""

import torch

from .. import _requests, basics
from .._requests import reduction
from .._world import global_process_set, world
from ..basics import *  # noqa: F401,F403
from ..basics import Average, Sum
from . import _tensors
from .compression import Compression

def init(comm=None, process_sets=None):
    """Joins the job, and waits until all ranks have joined. comm: only None, or a list of all ranks. process_sets: a
    list of ProcessSet to register, or "dynamic", which changes nothing: add_process_set() always works. For an elastic
    job see dlaunch.horovod.elastic."""
    world.init(_tensors, comm, process_sets)


# -- Submitting.


def _on_host(tensor):
    """Contiguous, in the host's memory: the tensor itself if it is so."""
    return tensor.detach().cpu().contiguous()


def _described(tensors):
    return [[_tensors.name_of(tensor), list(tensor.shape)] for tensor in tensors]


def _with_places(kind, tensors, name, process_set, request, in_place, single):
    """Submits collectives with as many results as tensors, of the same shapes."""
    tensors = list(tensors)
    inputs = [_on_host(tensor) for tensor in tensors]
    outputs = inputs if in_place else [torch.empty_like(x) for x in inputs]

    def finish(results):
        if in_place:
            for tensor, result in zip(tensors, results):
                if tensor.data_ptr() != result.data_ptr() or tensor.device != result.device:
                    tensor.detach().copy_(result)
            results = tensors
        else:
            results = [result.to(tensor.device) for tensor, result in zip(tensors, results)]
        return results[0] if single else results
    return world.submit(kind, name, process_set, request={"tensors": _described(inputs), **request}, arrays=_tensors,
                        inputs=inputs, outputs=outputs, finish=finish)


def _reduction(op, prescale_factor, postscale_factor, tensors, average=None):
    return _requests.reduced(op, prescale_factor, postscale_factor, map(_tensors.name_of, tensors), average)


def _gathering(kind, tensors, name, process_set, request, single):
    """Submits collectives whose results have other shapes."""
    tensors = list(tensors)
    _requests.with_rows(kind, [tensor.shape for tensor in tensors])
    inputs = [_on_host(tensor) for tensor in tensors]

    def finish(results):
        results = [result.to(tensor.device) for tensor, result in zip(tensors, results)]
        return results[0] if single else results
    return world.submit(kind, name, process_set, request={"tensors": _described(inputs), **request}, arrays=_tensors,
                        inputs=inputs, finish=finish)


# -- allreduce.


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    request = _reduction(op, prescale_factor, postscale_factor, [tensor], average)
    return _with_places("allreduce", [tensor], name, process_set, request, False, True)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    request = _reduction(op, prescale_factor, postscale_factor, [tensor], average)
    return _with_places("allreduce", [tensor], name, process_set, request, True, True)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """A list of tensors, which are reduced together once all ranks have submitted them."""
    request = _reduction(op, prescale_factor, postscale_factor, tensors, average)
    return _with_places("allreduce", tensors, name, process_set, request, False, False)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    request = _reduction(op, prescale_factor, postscale_factor, tensors, average)
    return _with_places("allreduce", tensors, name, process_set, request, True, False)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor,
                                                process_set))


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, how, *tensors):
        ctx.how = how
        return tuple(synchronize(grouped_allreduce_async(tensors, name=name, **how)))

    @staticmethod
    def backward(ctx, *gradients):
        return (None, None, *synchronize(grouped_allreduce_async(gradients, **ctx.how)))


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """Differentiable: the gradient is reduced in the same way."""
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor, postscale_factor,
                             process_set)[0]


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
                      postscale_factor=1.0, process_set=global_process_set):
    small = [compression.compress(tensor) for tensor in tensors]
    how = {"op": reduction(op, average), "prescale_factor": prescale_factor, "postscale_factor": postscale_factor,
           "process_set": process_set}
    reduced = _Allreduce.apply(name, how, *(tensor for tensor, _ in small))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, small)]


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """A sparse tensor: indices and values are gathered. Returns what synchronize() takes."""
    tensor = tensor.coalesce()
    indices = allgather_async(tensor.indices().t(), f"{name}.indices", process_set)
    values = allgather_async(tensor.values(), f"{name}.values", process_set)

    def finish():
        all_values = synchronize(values)
        if reduction(op) == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(synchronize(indices).t(), all_values, tensor.shape).coalesce()
    return finish


# -- allgather.


def allgather_async(tensor, name=None, process_set=global_process_set):
    return _gathering("allgather", [tensor], name, process_set, {}, True)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    return _gathering("allgather", tensors, name, process_set, {}, False)


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        handle = grouped_allgather_async(tensors, name, process_set)
        ctx.process_set, ctx.rows = process_set, [tensor.shape[0] for tensor in tensors]
        return tuple(synchronize(handle))

    @staticmethod
    def backward(ctx, *gradients):
        of_set = {"process_set": ctx.process_set}
        averaged = synchronize(grouped_allreduce_async(gradients, op=Average, **of_set))
        rows = synchronize(allgather_async(torch.tensor([ctx.rows]), **of_set))
        begins = rows[:ctx.process_set.rank()].sum(0).tolist()
        return (None, None, *(g.narrow(0, begin, count) for g, begin, count in zip(averaged, begins, ctx.rows)))


def allgather(tensor, name=None, process_set=global_process_set):
    """The tensors of all ranks, one after the other along the first dimension, which may differ. Differentiable: a
    rank's gradient is the average over the ranks of its part."""
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    return list(_Allgather.apply(name, process_set, *tensors))


# -- broadcast.


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    return _with_places("broadcast", [tensor], name, process_set, _requests.root(root_rank, process_set), False, True)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    return _with_places("broadcast", [tensor], name, process_set, _requests.root(root_rank, process_set), True, True)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, gradient):
        averaged = synchronize(allreduce_async(gradient, op=Average, process_set=ctx.process_set))
        return averaged if world.rank() == ctx.root_rank else torch.zeros_like(averaged), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """Differentiable: the root's gradient is the average over the ranks."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# -- alltoall.


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """synchronize() gives (tensor, received_splits)."""
    _requests.with_rows("alltoall", [tensor.shape])
    given = splits.tolist() if torch.is_tensor(splits) else splits
    counts = _requests.splits(tensor.shape[0], given, process_set)
    x = _on_host(tensor)

    def finish(results):
        out, received = results
        place = splits if torch.is_tensor(splits) else torch.empty(0, dtype=torch.int32)
        return out.to(tensor.device), torch.tensor(received, dtype=place.dtype, device=place.device)
    return world.submit("alltoall", name, process_set, request={"tensors": _described([x]), "splits": counts},
                        arrays=_tensors, inputs=[x], finish=finish)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        out, ctx.received = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.process_set = process_set
        if splits is None:
            return out
        ctx.mark_non_differentiable(ctx.received)
        return out, ctx.received

    @staticmethod
    def backward(ctx, gradient, *_):
        return synchronize(alltoall_async(gradient, ctx.received, process_set=ctx.process_set))[0], None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends rows of the tensor to each rank, in order: splits has their numbers; None: equal parts. Returns the
    received rows, in the order of the ranks; with splits also their number from each rank. Differentiable."""
    return _Alltoall.apply(tensor, splits, name, process_set)


# -- reducescatter.


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    request = _requests.scattered(op, prescale_factor, postscale_factor, [_tensors.name_of(tensor)])
    return _gathering("reducescatter", [tensor], name, process_set, request, True)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                                postscale_factor=1.0):
    request = _requests.scattered(op, prescale_factor, postscale_factor, map(_tensors.name_of, tensors))
    return _gathering("reducescatter", tensors, name, process_set, request, False)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, how, *tensors):
        ctx.how = how
        return tuple(synchronize(grouped_reducescatter_async(tensors, name, **how)))

    @staticmethod
    def backward(ctx, *gradients):
        process_set, op = ctx.how["process_set"], ctx.how["op"]
        if op not in (Average, Sum):
            raise ValueError(f"reducescatter with op={op} has no derivative")
        factor = ctx.how["prescale_factor"] * ctx.how["postscale_factor"] * (process_set.size() if op == Sum else 1)
        gathered = synchronize(grouped_allgather_async(gradients, process_set=process_set))
        return (None, None, *(gradient * factor for gradient in gathered))


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the reduction. If the rows do not divide evenly, the first ranks have one more.
    Differentiable: the gradient is that of all ranks, one after the other, and with op=Sum size times as much, as in
    Horovod."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor, postscale_factor)[0]


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                          prescale_factor=1.0, postscale_factor=1.0):
    small = [compression.compress(tensor) for tensor in tensors]
    how = {"op": op, "process_set": process_set, "prescale_factor": prescale_factor,
           "postscale_factor": postscale_factor}
    reduced = _Reducescatter.apply(name, how, *(tensor for tensor, _ in small))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, small)]


# -- Waiting.


def join(device=-1):
    """This rank has no more data. Until all ranks have joined it takes part in the collectives of the others: in
    reductions with zeros, elsewhere without data. Returns the rank that joined last. device: is not used."""
    return world.join()


def barrier(process_set=global_process_set):
    """Returns once all ranks of the process set have called it."""
    world.submit("barrier", None, process_set).wait()


def poll(handle):
    """Whether synchronize() will return at once."""
    return handle.poll()


def synchronize(handle):
    """Waits, and returns the result; raises HorovodInternalError if the collective failed."""
    return handle.wait() if hasattr(handle, "wait") else handle()


__all__ = [*basics.__all__, *(name for name in dir() if name.rstrip("_").rpartition("_")[2] in (
    "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "async") and not name.startswith("_")),
    "init", "join", "barrier", "poll", "synchronize"]

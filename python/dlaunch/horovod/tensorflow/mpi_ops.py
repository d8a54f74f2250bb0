"""Collectives on tensors of TensorFlow, eagerly and within tf.function. Names are Horovod's.

Each call waits for its result. Within a tf.function calls run in the order of the program, like everything with side
effects; a grouped call submits its tensors together. XLA cannot compile them: leave out jit_compile=True. Without name=
the n-th call of a kind matches the n-th one on other ranks, each time that it runs.

average=True and False are old words for op=Average and Sum. root_rank is a rank of the job, also within a process set.
ignore_name_scope, device_dense and device_sparse are not used.
"""

import numpy as np
import tensorflow as tf

from .. import _arrays, _numpy, basics
from .._requests import reduction
from .._world import global_process_set, world
from ..basics import *  # noqa: F401,F403
from ..basics import Average, Sum
from .compression import Compression


def init(comm=None, process_sets=None):
    """Joins the job, and waits until all ranks have joined: as in dlaunch.horovod.torch."""
    world.init(_arrays, comm, process_sets)


def _run(function, tensors, types, shapes):
    """function(arrays) returns arrays: called now, or within a graph whenever that runs."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(x) for x in function([tensor.numpy() for tensor in tensors])]
    results = tf.numpy_function(lambda *arrays: [np.asarray(x) for x in function([np.asarray(x) for x in arrays])],
                                tensors, types)
    for result, shape in zip(results, shapes):
        result.set_shape(shape)
    return list(results)


def _tensors(things):
    return [tf.convert_to_tensor(thing) for thing in things]


def _free_rows(tensors):
    return [[None, *tensor.shape[1:]] if tensor.shape.rank is not None else None for tensor in tensors]


# -- allreduce.


def _reduce_dense(tensors, name, op, prescale_factor, postscale_factor, process_set):
    @tf.custom_gradient
    def reduced(*tensors):
        results = _run(lambda arrays: _numpy.allreduce(arrays, name, op, prescale_factor, postscale_factor,
                                                       process_set),
                       tensors, [tensor.dtype for tensor in tensors], [tensor.shape for tensor in tensors])

        def gradient(*gradients):
            return _reduce_dense(gradients, name and f"{name}.gradient", op, prescale_factor, postscale_factor,
                                 process_set)
        return results, gradient
    return list(reduced(*tensors))


def grouped_allreduce(tensors, average=None, device_dense="", device_sparse="", compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set,
                      ignore_name_scope=False, name=None):
    """A list of tensors, which are reduced together. IndexedSlices are gathered, with op Average or Sum."""
    op, tensors = reduction(op, average), list(tensors)
    results = [None] * len(tensors)
    dense = []
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            results[i] = _reduce_slices(tensor, name and f"{name}.{i}", op, process_set)
        else:
            dense.append(i)
    small = [compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense]
    if small:
        reduced = _reduce_dense([tensor for tensor, _ in small], name, op, prescale_factor, postscale_factor,
                                process_set)
        for i, tensor, (_, ctx) in zip(dense, reduced, small):
            results[i] = compression.decompress(tensor, ctx)
    return results


def allreduce(tensor, average=None, device_dense="", device_sparse="", compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, name=None, process_set=global_process_set,
              ignore_name_scope=False):
    """Differentiable: the gradient is reduced in the same way."""
    return grouped_allreduce([tensor], average, device_dense, device_sparse, compression, op, prescale_factor,
                             postscale_factor, process_set, name=name)[0]


def _reduce_slices(slices, name, op, process_set):
    if op not in (Average, Sum):
        raise ValueError(f"IndexedSlices support only Average and Sum, not {op}: make them dense")
    values = allgather(slices.values, name and f"{name}.values", process_set=process_set)
    indices = allgather(slices.indices, name and f"{name}.indices", process_set=process_set)
    if op == Average:
        values = values / tf.cast(process_set.size(), values.dtype)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


# -- allgather.


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    @tf.custom_gradient
    def gathered(*tensors):
        results = _run(lambda arrays: _numpy.allgather(arrays, name, process_set), tensors,
                       [tensor.dtype for tensor in tensors], _free_rows(tensors))

        def gradient(*gradients):
            averaged = _reduce_dense(gradients, name and f"{name}.gradient", Average, 1.0, 1.0, process_set)
            rows = tf.stack([[tf.shape(tensor)[0] for tensor in tensors]])
            rows, = _run(lambda arrays: _numpy.allgather(arrays, name and f"{name}.rows", process_set), [rows],
                         [rows.dtype], [[None, len(tensors)]])
            me = process_set.rank()
            begins = tf.reduce_sum(rows[:me], 0)
            return [whole[begins[i]:begins[i] + rows[me, i]] for i, whole in enumerate(averaged)]
        return results, gradient
    return list(gathered(*_tensors(tensors)))


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """The tensors of all ranks, one after the other along the first dimension, which may differ. Differentiable: a
    rank's gradient is the average over the ranks of its part."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


# -- broadcast.


def broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Differentiable: the root's gradient is the average over the ranks."""
    @tf.custom_gradient
    def sent(tensor):
        result, = _run(lambda arrays: _numpy.broadcast(arrays, root_rank, name, process_set), [tensor], [tensor.dtype],
                       [tensor.shape])

        def gradient(dy):
            averaged, = _reduce_dense([dy], name and f"{name}.gradient", Average, 1.0, 1.0, process_set)
            return averaged if world.rank() == root_rank else tf.zeros_like(averaged)
        return result, gradient
    return sent(tf.convert_to_tensor(tensor))


def broadcast_(variables, root_rank, name=None, process_set=global_process_set):
    """Copies the root's variables to all ranks, in place, all together."""
    variables = list(variables)
    values = [tf.convert_to_tensor(variable) for variable in variables]
    results = _run(lambda arrays: _numpy.broadcast(arrays, root_rank, name, process_set), values,
                   [value.dtype for value in values], [value.shape for value in values])
    for variable, result in zip(variables, results):
        variable.assign(result)
    return variables


# -- alltoall.


def alltoall(tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Rows of the tensor to each rank; None: equal parts. With splits the result is (tensor, received splits).
    Differentiable."""
    tensor = tf.convert_to_tensor(tensor)
    given = [] if splits is None else [tf.cast(splits, tf.int32)]

    def exchange(tensor, *splits):
        return _run(lambda arrays: _numpy.alltoall(arrays[0], arrays[1].tolist() if len(arrays) > 1 else None, name,
                                                   process_set),
                    [tensor, *splits], [tensor.dtype, tf.int32], [*_free_rows([tensor]), [None]])

    @tf.custom_gradient
    def exchanged(tensor):
        out, received = exchange(tensor, *given)

        def gradient(dy, _):
            back, _ = alltoall(dy, received, name and f"{name}.gradient", process_set=process_set)
            return back
        return [out, received], gradient
    out, received = exchanged(tensor)
    return out if splits is None else (out, received)


# -- reducescatter.


def grouped_reducescatter(tensors, device_dense="", compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0, name=None):
    @tf.custom_gradient
    def scattered(*tensors):
        results = _run(lambda arrays: _numpy.reducescatter(arrays, name, op, prescale_factor, postscale_factor,
                                                           process_set),
                       tensors, [tensor.dtype for tensor in tensors], _free_rows(tensors))

        def gradient(*gradients):
            if op not in (Average, Sum):
                raise ValueError(f"reducescatter with op={op} has no derivative")
            factor = prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)
            whole = grouped_allgather(gradients, name and f"{name}.gradient", process_set=process_set)
            return [tensor * tf.cast(factor, tensor.dtype) for tensor in whole]
        return results, gradient
    small = [compression.compress(tensor) for tensor in _tensors(tensors)]
    reduced = scattered(*(tensor for tensor, _ in small))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, small)]


def reducescatter(tensor, device_dense="", compression=Compression.none, op=Average, name=None,
                  process_set=global_process_set, ignore_name_scope=False, prescale_factor=1.0, postscale_factor=1.0):
    """This rank's rows of the reduction. If the rows do not divide evenly, the first ranks have one more.
    Differentiable, with the gradient of dlaunch.horovod.torch."""
    return grouped_reducescatter([tensor], device_dense, compression, op, process_set, prescale_factor,
                                 postscale_factor, name)[0]


# -- Waiting, and the place of this rank within a graph.


def join():
    """As in dlaunch.horovod.torch."""
    return world.join()


def barrier(process_set=global_process_set):
    """Returns once all ranks of the process set have called it."""
    world.submit("barrier", None, process_set).wait()


def _number_op(number):
    result, = _run(lambda arrays: [np.int32(number())], [], [tf.int32], [[]])
    return result


def rank_op(name=None):
    """rank() as a tensor, whenever the graph runs."""
    return _number_op(basics.rank)


def size_op(process_set_id=0, name=None):
    return _number_op(lambda: basics.process_set_by_id(process_set_id).size())


def process_set_included_op(process_set_id=0, name=None):
    """1 if this rank is in the process set."""
    return _number_op(lambda: int(basics.process_set_by_id(process_set_id).included()))


def local_rank_op(name=None):
    return _number_op(basics.local_rank)


def local_size_op(name=None):
    return _number_op(basics.local_size)


__all__ = [*basics.__all__, "allgather", "allreduce", "alltoall", "barrier", "broadcast", "broadcast_",
           "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "init", "join", "local_rank_op",
           "local_size_op", "process_set_included_op", "rank_op", "reducescatter", "size_op"]

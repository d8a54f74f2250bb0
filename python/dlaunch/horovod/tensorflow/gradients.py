"""DistributedGradientTape and DistributedOptimizer: gradients over all ranks."""

import tensorflow as tf

from .._requests import reduction
from .._world import global_process_set
from ..basics import Average
from .compression import Compression
from .mpi_ops import grouped_allreduce


class _Reducer:
    def __init__(self, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set):
        self._op = reduction(op)
        if gradient_predivide_factor != 1.0 and self._op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        self._compression, self._sparse_as_dense, self._process_set = compression, sparse_as_dense, process_set
        self._predivide = gradient_predivide_factor
        if groups is not None and not isinstance(groups, list) and not (isinstance(groups, int) and groups >= 0):
            raise ValueError("groups should be a non-negative integer or a list of lists of variables.")

    def reduce(self, gradients):
        """None stays None; it must be None on all ranks. Ranks outside the process set keep their own gradients."""
        results = list(gradients)
        there = [i for i, gradient in enumerate(results) if gradient is not None]
        if self._sparse_as_dense:
            for i in there:
                results[i] = tf.convert_to_tensor(results[i])
        if there and self._process_set.included() is not False:
            reduced = grouped_allreduce([results[i] for i in there], compression=self._compression, op=self._op,
                                        prescale_factor=1 / self._predivide, postscale_factor=self._predivide,
                                        process_set=self._process_set)
            for i, gradient in zip(there, reduced):
                results[i] = gradient
        return results


class _Tape:
    """A tf.GradientTape whose gradient() is reduced."""

    def __init__(self, tape, reducer):
        self._tape, self._reducer = tape, reducer

    def gradient(self, target, sources, output_gradients=None, use_reducer=True, **kwargs):
        gradients = self._tape.gradient(target, sources, output_gradients, **kwargs)
        flat = tf.nest.flatten(gradients)
        return tf.nest.pack_sequence_as(gradients, self._reducer.reduce(flat)) if use_reducer else gradients

    def __enter__(self):
        self._tape.__enter__()
        return self

    def __exit__(self, *exception):
        return self._tape.__exit__(*exception)

    def __getattr__(self, name):
        return getattr(self._tape, name)


def DistributedGradientTape(gradtape, device_dense="", device_sparse="", compression=Compression.none,
                            sparse_as_dense=False, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None,
                            process_set=global_process_set):
    """The tape, with a gradient() that reduces the gradients over the ranks, all in one collective.

    compression: of sent gradients. sparse_as_dense: makes IndexedSlices dense first; else indices and values are
    gathered. gradient_predivide_factor: op=Average divides gradients by it before the sum, and the sum by size / it.
    process_set: over whose ranks; the gradients of the other ranks stay as they are.
    groups and num_groups are not needed: all gradients are one group."""
    return _Tape(gradtape, _Reducer(compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set))


class _Optimizer:
    """The methods of a wrapped optimizer of tf_keras that precede its class's. _hvd: its _Reducer."""

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        reduced = self._hvd.reduce([gradient for gradient, _ in pairs])
        return super().apply_gradients(list(zip(reduced, (variable for _, variable in pairs))), *args, **kwargs)


class _Keras3Optimizer:
    """The same for Keras 3, whose apply_gradients() calls apply()."""

    def apply(self, grads, trainable_variables=None):
        return super().apply(self._hvd.reduce(list(grads)), trainable_variables)


def _wrapped_class(kind):
    """It has the name of the optimizer's own class, under which Keras saves it."""
    of = _Keras3Optimizer if hasattr(kind, "apply") else _Optimizer
    return type(kind.__name__, (of, kind), {"__module__": kind.__module__})


def DistributedOptimizer(optimizer, name=None, use_locking=False, device_dense="", device_sparse="",
                         compression=Compression.none, sparse_as_dense=False, backward_passes_per_step=1, op=Average,
                         gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None,
                         process_set=global_process_set):
    """An optimizer of Keras 3 or of tf_keras like the given one, which reduces the gradients over the ranks before it
    applies them, all in one collective. Pass it to compile() or call apply_gradients().

    Keras 3 may compile training steps by XLA, which cannot reduce: pass jit_compile=False to compile(), or one of this
    package's callbacks, which does that, to fit(). backward_passes_per_step: 1; Keras itself has
    gradient_accumulation_steps. The other arguments are those of DistributedGradientTape(); name, use_locking and
    average_aggregated_gradients are not used."""
    if backward_passes_per_step != 1:
        raise ValueError("backward_passes_per_step is 1 here: give the optimizer of Keras gradient_accumulation_steps=")
    if not hasattr(optimizer, "get_config") or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"{type(optimizer).__name__} is no optimizer of Keras; for optimizers of TensorFlow 1 there "
                         "is DistributedGradientTape")
    wrapped = _wrapped_class(type(optimizer)).from_config(optimizer.get_config())
    wrapped._hvd = _Reducer(compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set)
    return wrapped

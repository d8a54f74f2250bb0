"""Collectives over the ranks of a job on JAX arrays of the host, by libdlring.

    import jax
    import dlaunch.jax

    loss, grads = jax.value_and_grad(loss_of)(params, batch)    # this rank's part of the batch
    grads = dlaunch.jax.pmean(grads)                            # the same on all ranks

    dlaunch --nproc 4 train.py

Each function takes a pytree of arrays and returns one of the same structure. All ranks call the same functions in the
same order, with the same shapes and dtypes. Arrays of one dtype go in one collective. Results are in host memory, as
arrays of JAX on its default device.

Within jax.jit these are ordered effects: JAX runs them in the order of the program. A call outside of jit first waits
for those that this thread has begun within jit. They have no derivative: differentiate first, then reduce. JAX refuses
vmap over them. The loss of a rank raises dlaunch.PeerLost; within jit JAX wraps it in a JaxRuntimeError, which later
calls outside of jit raise, too.

The ranks need no jax.distributed.initialize(): each has its own devices. With it, call these outside of jit only.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from . import init

__all__ = ["all_gather", "broadcast", "communicator", "pmax", "pmean", "pmin", "psum"]


@functools.cache
def communicator():
    """The communicator of these functions; the first call makes it."""
    return init()


def psum(tree):
    """The sum over the ranks of each array."""
    return _over_ranks(functools.partial(_reduced, op="sum"), tree)


def pmean(tree):
    """The mean over the ranks of each array, for example of gradients. Integers are divided as by //, towards 0."""
    return _over_ranks(functools.partial(_reduced, op="avg"), tree)


def pmax(tree):
    """The maximum over the ranks of each element."""
    return _over_ranks(functools.partial(_reduced, op="max"), tree)


def pmin(tree):
    """The minimum over the ranks of each element."""
    return _over_ranks(functools.partial(_reduced, op="min"), tree)


def broadcast(tree, root=0):
    """The arrays of rank `root`, for example its parameters before the first step."""
    return _over_ranks(functools.partial(_broadcast, root=root), tree)


def all_gather(tree):
    """The arrays of all ranks: result[r] is rank r's, so each has one more axis, in front."""
    return _over_ranks(_gathered, tree, (communicator().size,))


def _over_ranks(collective, tree, in_front=()):
    leaves, structure = jax.tree.flatten(tree)
    results = [jax.ShapeDtypeStruct(in_front + jnp.shape(x), jnp.result_type(x)) for x in leaves]
    if any(isinstance(x, jax.core.Tracer) for x in leaves):
        leaves = io_callback(functools.partial(_by_dtype, collective), results, leaves, ordered=True)
    else:
        jax.effects_barrier()
        arrays = [np.asarray(x, result.dtype) for x, result in zip(leaves, results)]
        leaves = [jnp.asarray(x) for x in _by_dtype(collective, arrays)]
    return jax.tree.unflatten(structure, leaves)


def _by_dtype(collective, leaves):
    """Calls collective(flat array), which returns an array with an equally long last axis, once for all leaves of a
    dtype."""
    leaves = [np.asarray(x) for x in leaves]
    results = [None] * len(leaves)
    for dtype in dict.fromkeys(x.dtype for x in leaves):
        places = [i for i, x in enumerate(leaves) if x.dtype == dtype]
        flat = collective(np.concatenate([leaves[i].ravel() for i in places]))
        ends = np.cumsum([leaves[i].size for i in places])
        for i, part in zip(places, np.split(flat, ends[:-1], axis=-1)):
            results[i] = part.reshape(part.shape[:-1] + leaves[i].shape)
    return results


def _reduced(flat, op):
    return communicator().all_reduce(flat, op, out=flat)


def _broadcast(flat, root):
    communicator().broadcast(flat, root)
    return flat


def _gathered(flat):
    comm = communicator()
    return comm.all_gather(flat).reshape(comm.size, flat.size)

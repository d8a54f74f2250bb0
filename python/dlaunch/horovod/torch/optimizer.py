"""DistributedOptimizer: reduces gradients while backward() still runs."""

import contextlib
import warnings

import torch

from .._requests import reduction
from .._world import global_process_set, world
from .compression import Compression
from .mpi_ops import (Adasum, Average, allreduce_async_, grouped_allreduce_async_, sparse_allreduce_async, synchronize)

_TOO_OFTEN = ("Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
              "backward_passes_per_step to accumulate gradients locally.")
_TOO_EARLY = ("optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
              "optimizer.synchronize(). This is prohibited as it can cause a race condition.")
_TWICE = ("optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(): the "
          "gradients are reduced twice. Use skip_synchronize() where you call synchronize().")


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none, backward_passes_per_step=1,
                         op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set):
    """An optimizer like the given one, of a class derived from its class, whose step() first reduces the gradients over
    the ranks. backward() submits each gradient when it is ready, and the reductions run in the background.

    named_parameters: model.named_parameters(); without, parameters are numbered, and have to have the same order on
    all ranks. compression: of gradients that travel. backward_passes_per_step: how often backward() adds to the
    gradients before they are reduced; divide the loss by it, as Horovod does not. gradient_predivide_factor: with
    op=Average gradients are divided by it before the sum, and the sum by size / it. groups: a number of groups of
    parameters, or a list of lists of them; the gradients of a group are reduced together once all are there.
    num_groups: old word for a number of groups. sparse_as_dense: sparse gradients become dense ones first; else their
    indices and values are gathered. process_set: over whose ranks; the other ranks step alone.

    op=Adasum: each rank steps alone; then step() reduces the changes by Adasum."""
    op = reduction(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups:
        warnings.warn("num_groups is called groups= now", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if groups is not None and not isinstance(groups, list) and not (isinstance(groups, int) and groups >= 0):
        raise ValueError("groups should be a non-negative integer or a list of lists of torch.Tensor.")
    names = _names(optimizer, named_parameters)
    of = _AdasumOptimizer if op == Adasum else _DistributedOptimizer
    wrapped = object.__new__(type(type(optimizer).__name__, (of, type(optimizer)), {}))
    wrapped.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    if op == Adasum:
        wrapped._hvd = _Deltas(names, compression, process_set)
    else:
        wrapped._hvd = _Reducer(names, compression, backward_passes_per_step, op, gradient_predivide_factor, groups,
                                sparse_as_dense, process_set)
    return wrapped


def _names(optimizer, named_parameters):
    """{parameter: its name}, in the optimizer's order."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        # world.name() gives noname.1 and so on to other calls, which may run meanwhile.
        return {p: f"gradient.noname.{i}" for i, p in enumerate(parameters)}
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in named):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by "
                         "model.named_parameters().")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}")
    by_parameter = {p: name for name, p in named}
    missing = sum(p not in by_parameter for p in parameters)
    if missing:
        raise ValueError(f"named_parameters was specified, but {missing} of the optimizer's parameters were not named")
    return {p: by_parameter[p] for p in parameters}


class _Reducer:
    """The gradients of one optimizer and their reductions."""

    def __init__(self, names, compression, passes, op, predivide, groups, sparse_as_dense, process_set):
        self._names = {p: name for p, name in names.items() if p.requires_grad}
        self._compression, self._op, self._predivide = compression, op, predivide
        self._sparse_as_dense, self._process_set = sparse_as_dense, process_set
        self.passes = passes
        self._left = dict.fromkeys(self._names, passes)  # backward passes, by parameter
        self._under_way = {}                             # handles by parameter, or by group
        self._groups = self._grouped(groups)             # by parameter
        self._accumulators = []
        self._round = world.round
        self.synchronized, self.synchronizes = False, True
        # Alone there is nothing to reduce, unless others may come.
        if process_set.included() is not False and (process_set.size() != 1 or world.elastic):
            for p in self._names:
                self._add_hook(p)

    def _grouped(self, groups):
        parameters = list(self._names)
        if not groups or not parameters:
            return {}
        if isinstance(groups, int):
            count = min(groups, len(parameters))
            base, larger = divmod(len(parameters), count)
            ends = [0]
            for i in range(count):
                ends.append(ends[-1] + base + (i < larger))
            groups = [parameters[a:b] for a, b in zip(ends, ends[1:])]
        chosen = [tuple(p for p in group if p in self._names) for group in groups]
        by_parameter = {p: group for group in chosen for p in group}
        if len(by_parameter) != sum(map(len, chosen)):
            raise ValueError("groups: a parameter is in two of them")
        return by_parameter

    def _add_hook(self, p):
        accumulator = p.expand_as(p).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_: self._came(p))
        self._accumulators.append(accumulator)  # it lives as long as a reference to it

    def _new_round(self):
        """Drops pending reductions of an earlier round of an elastic job."""
        if self._round != world.round:
            self._round = world.round
            self.reset()

    @property
    def pending(self):
        self._new_round()
        return bool(self._under_way) or any(left != self.passes for left in self._left.values())

    def reset(self, passes=None):
        self.passes = self.passes if passes is None else passes
        self._left = dict.fromkeys(self._names, self.passes)
        self._under_way, self.synchronized = {}, False

    def _came(self, p):
        """backward() has added to p.grad."""
        self._new_round()
        if self._left[p] <= 0:
            raise AssertionError(_TOO_OFTEN)
        self._left[p] -= 1
        if self._left[p] == 0:
            group = self._groups.get(p)
            if group is None:
                self._submit(p)
            elif all(self._left[other] == 0 for other in group):
                self._submit_group(group)

    def _gradient(self, p):
        if p.grad is None:  # another rank's pass may have reached it
            p.grad = torch.zeros_like(p)
        if p.grad.is_sparse and (self._sparse_as_dense or p in self._groups):
            p.grad = p.grad.to_dense()
        return p.grad

    def _how(self):
        pre, post = (1 / self._predivide, self._predivide) if self._op == Average else (1.0, 1.0)
        return {"op": self._op, "prescale_factor": pre, "postscale_factor": post, "process_set": self._process_set}

    def _submit(self, p):
        gradient, name = self._gradient(p), self._names[p]
        if gradient.is_sparse:
            small, ctx = gradient, None
            handle = sparse_allreduce_async(gradient, name, self._op, self._process_set)
        else:
            small, ctx = self._compression.compress(gradient.detach())
            handle = allreduce_async_(small, name=name, **self._how())
        self._under_way[p] = handle, ctx

    def _submit_group(self, group):
        small = [self._compression.compress(self._gradient(p).detach()) for p in group]
        handle = grouped_allreduce_async_([x for x, _ in small], name=f"group.{self._names[group[0]]}", **self._how())
        self._under_way[group] = handle, [ctx for _, ctx in small]

    def synchronize(self):
        """Waits until all gradients are reduced, even those that this rank's passes did not reach."""
        self._new_round()
        if self._accumulators:
            for p in self._names:
                group = self._groups.get(p)
                if group is None and p not in self._under_way:
                    self._submit(p)
                elif group is not None and group not in self._under_way:
                    self._submit_group(group)
            for what, (handle, ctx) in self._under_way.items():
                result = synchronize(handle)
                if isinstance(what, tuple):
                    for p, x, one in zip(what, result, ctx):
                        self._put(p, x, one)
                else:
                    self._put(what, result, ctx)
        self.reset()
        self.synchronized = True

    def _put(self, p, result, ctx):
        if result.is_sparse:
            p.grad = result
            return
        result = self._compression.decompress(result, ctx)
        if result.data_ptr() != p.grad.data_ptr():
            p.grad.detach().copy_(result)


class _DistributedOptimizer:
    """The methods of a wrapped optimizer beside those of its class. _hvd: its _Reducer."""

    def set_backward_passes_per_step(self, passes):
        self._hvd.reset(passes)

    def synchronize(self):
        """Waits until all gradients are reduced. For code that changes them before step(), such as clipping:

            optimizer.synchronize()
            clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()"""
        self._hvd.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self):
        """Keeps step() from reducing gradients within this context."""
        self._hvd.synchronizes = False
        try:
            yield
        finally:
            self._hvd.synchronizes = True

    def step(self, closure=None):
        if self._hvd.synchronizes:
            if self._hvd.synchronized:
                warnings.warn(_TWICE)
            self.synchronize()
        self._hvd.synchronized = False
        return super().step(closure)

    def zero_grad(self, *args, **kwargs):
        if self._hvd.pending:
            raise AssertionError(_TOO_EARLY)
        return super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        self._hvd.reset()
        return super().load_state_dict(*args, **kwargs)


class _Deltas:
    """Reduces the changes of a step by Adasum."""

    def __init__(self, names, compression, process_set):
        self._names, self._compression, self._process_set = names, compression, process_set

    def around(self, step):
        """Returns what step() does."""
        if self._process_set.included() is False:
            return step()
        before = {p: p.detach().clone() for p in self._names if p.requires_grad}
        result = step()
        handles = []
        for p, start in before.items():
            small, ctx = self._compression.compress(p.detach() - start)
            handles.append((p, start, ctx, allreduce_async_(small, name=f"delta.{self._names[p]}", op=Adasum,
                                                            process_set=self._process_set)))
        for p, start, ctx, handle in handles:
            p.detach().copy_(start + self._compression.decompress(synchronize(handle), ctx))
        return result


class _AdasumOptimizer:
    """The same with op=Adasum. _hvd: its _Deltas."""

    def set_backward_passes_per_step(self, passes):
        """Does nothing: step() knows when the passes are over."""

    def synchronize(self):
        """Does nothing: step() reduces its changes."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure=None):
        return self._hvd.around(lambda: super(_AdasumOptimizer, self).step(closure))

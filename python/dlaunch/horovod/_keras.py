"""The common part of the modules for Keras 3 and for tf_keras: callbacks without their base class, and values."""

import numpy as np

from . import _numpy
from ._requests import reduction
from ._world import global_process_set, world


def optimizer_variables(optimizer):
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def plain_values(variables):
    return [np.asarray(variable) for variable in variables]


# -- Values.


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None,
              process_set=global_process_set):
    """Reduces a number or an array to an array of NumPy. Keras programs call it outside of graphs."""
    return _numpy.allreduce([_array(value)], name, reduction(op, average), prescale_factor, postscale_factor,
                            process_set)[0]


def allgather(value, name=None, process_set=global_process_set):
    return _numpy.allgather([_array(value)], name, process_set)[0]


def broadcast(value, root_rank, name=None, process_set=global_process_set):
    return _numpy.broadcast([_array(value)], root_rank, name, process_set)[0]


def reducescatter(value, name=None, op=None, process_set=global_process_set, prescale_factor=1.0,
                  postscale_factor=1.0):
    return _numpy.reducescatter([_array(value)], name, reduction(op), prescale_factor, postscale_factor, process_set)[0]


def _array(value):
    return np.asarray(value, np.float32) if isinstance(value, float) else np.asarray(value)


# -- Callbacks.


def with_base(base, *kinds):
    """Classes of these kinds of callbacks, derived from Keras' own class."""
    return [type(f"{kind.__name__}Callback", (kind, base), {"__doc__": kind.__doc__}) for kind in kinds]


class Plain:
    """Keras 3 compiles training steps by XLA if it can, and XLA cannot reduce: these callbacks turn that off."""

    def set_model(self, model):
        super().set_model(model)
        if getattr(model, "jit_compile", None):
            model.jit_compile = False


class BroadcastGlobalVariables(Plain):
    """After the first batch copies the weights and the optimizer's variables of rank root_rank to all ranks."""

    def __init__(self, root_rank, device=""):
        super().__init__()
        self.root_rank, self._done = root_rank, False

    def on_train_batch_end(self, batch, logs=None):
        if self._done:
            return
        from .tensorflow.functions import broadcast_variables
        broadcast_variables([*self.model.variables, *optimizer_variables(self.model.optimizer)], self.root_rank)
        self._done = True


class MetricAverage(Plain):
    """At the end of each epoch replaces the metrics with their averages over the ranks, for the callbacks after this
    one, such as ReduceLROnPlateau, TensorBoard and ModelCheckpoint."""

    def __init__(self, device=""):
        super().__init__()

    def on_epoch_end(self, epoch, logs=None):
        names = sorted(name for name, value in (logs or {}).items() if np.isscalar(value) or np.ndim(value) == 0)
        if names:
            values = np.array([float(logs[name]) for name in names])
            logs.update(zip(names, allreduce(values).tolist()))


class LearningRateSchedule(Plain):
    """The learning rate is initial_lr times the multiplier, a function of the epoch. A number m stands for
    m ** (epoch - start_epoch), as in Horovod 0.23 and later: the learning rate is initial_lr in start_epoch, and each
    epoch multiplies it by m.

    start_epoch, end_epoch: the first epoch, and the one after the last. staircase: it changes only with epochs;
    otherwise with batches, by parts of an epoch, which needs steps_per_epoch if Keras does not know it.
    momentum_correction: is not used, because Keras' optimizers have a constant momentum."""

    def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True,
                 steps_per_epoch=None):
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase, self.steps_per_epoch = staircase, steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self._epoch = 0

    def on_train_begin(self, logs=None):
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError("Keras does not know how many steps an epoch has: give steps_per_epoch=")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        if self.staircase:
            self._adjust(epoch)

    def on_train_batch_begin(self, batch, logs=None):
        if not self.staircase:
            self._adjust(self._epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = float(np.asarray(self.model.optimizer.learning_rate))

    def _adjust(self, epoch):
        if epoch >= self.start_epoch and (self.end_epoch is None or epoch < self.end_epoch):
            self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)


class LearningRateWarmup(LearningRateSchedule):
    """The learning rate grows from initial_lr / size() to initial_lr within warmup_epochs, batch by batch, as in
    "Accurate, Large Minibatch SGD"."""

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0):
        def multiplier(epoch):
            epoch += 1 / self.steps_per_epoch  # the last batch of the last epoch gets the full rate
            return 1 / world.size() * (epoch * (world.size() - 1) / warmup_epochs + 1)
        super().__init__(initial_lr, multiplier, 0, warmup_epochs, staircase=False, steps_per_epoch=steps_per_epoch)
        self._last, self._verbose = warmup_epochs - 1, verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self._last and self._verbose and world.rank() == 0:
            print(f"Epoch {epoch + 1}: finished gradual learning rate warmup to {self.initial_lr * self._reached():g}.")

    def _reached(self):
        return self.multiplier(self._last + 1 - 1 / self.steps_per_epoch)


class CommitState(Plain):
    """Commits an elastic state every `batches_per_commit` batches, and at the end of each epoch."""

    def __init__(self, state, batches_per_commit=1):
        super().__init__()
        self._state, self._every, self._left = state, batches_per_commit, batches_per_commit

    def on_train_begin(self, logs=None):
        self._left = self._every  # equal on all ranks, even on new ones

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if self._left == 0:
            self._state.commit()
            self._left = self._every

    def on_epoch_end(self, epoch, logs=None):
        self._state.commit()


class UpdateBatchState(Plain):
    """Sets state.batch to the number of the last batch of the epoch, as Keras counts, and to 0 after the epoch. Put it
    before CommitStateCallback."""

    def __init__(self, state):
        super().__init__()
        self._state = state

    def on_train_batch_end(self, batch, logs=None):
        self._state.batch = batch

    def on_epoch_end(self, epoch, logs=None):
        self._state.batch = 0


class UpdateEpochState(Plain):
    """Sets state.epoch to the next epoch; fit() counts from 0 and trains the remaining epochs. Put it before
    CommitStateCallback."""

    def __init__(self, state):
        super().__init__()
        self._state, self._first = state, 0

    def on_train_begin(self, logs=None):
        self._first = self._state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self._state.epoch = self._first + epoch + 1

"""Elastic trainings with TensorFlow: see dlaunch.horovod.elastic."""

import functools

import tensorflow as tf

from .._errors import HorovodInternalError, HostsUpdatedInterrupt
from .._keras import optimizer_variables, plain_values
from .._world import world
from ..basics import rank
from ..elastic import ObjectState, State, run_fn
from .functions import broadcast_object, broadcast_variables


class TensorFlowState(ObjectState):
    """Variables of TensorFlow, and values that can be pickled."""

    def __init__(self, variables=None, session=None, **kwargs):
        self.variables = list(variables or [])
        super().__init__(broadcast_object, rank, **kwargs)
        self._keep()

    def _all_variables(self):
        return self.variables

    def _keep(self):
        self._values = plain_values(self._all_variables())

    def save(self):
        self._keep()
        super().save()

    def restore(self):
        for variable, value in zip(self._all_variables(), self._values):
            variable.assign(value)
        super().restore()

    def sync(self):
        broadcast_variables(self._all_variables(), root_rank=0)
        self._keep()
        super().sync()


class TensorFlowKerasState(TensorFlowState):
    """A built model of Keras, its optimizer, and values that can be pickled."""

    def __init__(self, model, optimizer=None, backend=None, **kwargs):
        self.model = model
        self.optimizer = optimizer or model.optimizer
        if hasattr(self.optimizer, "build") and not getattr(self.optimizer, "built", False):
            self.optimizer.build(model.trainable_variables)  # a new worker then has the variables that others send
        super().__init__(**kwargs)

    def _all_variables(self):
        return [*self.model.variables, *optimizer_variables(self.optimizer)]


def run(func):
    """As in dlaunch.horovod.elastic, also for a collective that failed within a graph."""

    @functools.wraps(func)
    def train(state, *args, **kwargs):
        try:
            return func(state, *args, **kwargs)
        except tf.errors.OpError as error:
            if world.engine.end is None or "HorovodInternalError" not in str(error):
                raise
            text, cause = world.engine.end
            raise HorovodInternalError(text) from cause
    return run_fn(train)


__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TensorFlowKerasState",
           "TensorFlowState", "run"]

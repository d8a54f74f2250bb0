"""Elastic trainings with tf.keras: see dlaunch.horovod.elastic; dlaunch.horovod._keras describes the callbacks."""

import tensorflow as tf

from ... import _keras
from ...tensorflow.elastic import HorovodInternalError, HostsUpdatedInterrupt, TensorFlowKerasState, run

KerasState = TensorFlowKerasState
CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = _keras.with_base(
    tf.keras.callbacks.Callback, _keras.CommitState, _keras.UpdateBatchState, _keras.UpdateEpochState)

__all__ = ["CommitStateCallback", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState", "TensorFlowKerasState",
           "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

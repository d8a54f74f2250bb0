"""Callbacks for keras: dlaunch.horovod._keras describes them."""

import keras

from .. import _keras

(BroadcastGlobalVariablesCallback, MetricAverageCallback, LearningRateScheduleCallback,
 LearningRateWarmupCallback) = _keras.with_base(
     keras.callbacks.Callback, _keras.BroadcastGlobalVariables, _keras.MetricAverage, _keras.LearningRateSchedule,
     _keras.LearningRateWarmup)

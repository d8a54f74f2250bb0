"""Callbacks for tf.keras: dlaunch.horovod._keras describes them."""

import tensorflow as tf

from ... import _keras

(BroadcastGlobalVariablesCallback, MetricAverageCallback, LearningRateScheduleCallback,
 LearningRateWarmupCallback) = _keras.with_base(
     tf.keras.callbacks.Callback, _keras.BroadcastGlobalVariables, _keras.MetricAverage, _keras.LearningRateSchedule,
     _keras.LearningRateWarmup)

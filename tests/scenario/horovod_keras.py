"""Trainings by Horovod's API for Keras come to the weights of one process that has the whole batch.

usage: horovod_keras.py horovod.keras|horovod.tensorflow.keras [FOLDER VICTIM]: with a folder an elastic one."""

import importlib
import os
import signal
import sys

import numpy as np
import tensorflow as tf

hvd = importlib.import_module(sys.argv[1])
keras = importlib.import_module("keras") if sys.argv[1] == "horovod.keras" else tf.keras

hvd.init()
rank, size = hvd.rank(), hvd.size()
PER_RANK, STEPS, EPOCHS = 8, 3, 4
x = np.random.default_rng(1).normal(size=(PER_RANK * size * STEPS, 4)).astype(np.float32)
y = np.tanh(x.sum(1, keepdims=True))


def model_of(seed):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential([layers.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])


def rows_of(ranks):
    """Those of each step's global batch that these ranks have."""
    batches = np.arange(len(x)).reshape(STEPS, size, PER_RANK)
    return batches[:, ranks].reshape(-1)


def trained(wrap, ranks, seed, callbacks=(), lr=0.1):
    model = model_of(seed)
    model.compile(optimizer=wrap(keras.optimizers.SGD(lr)), loss="mse", metrics=["mae"])
    rows = rows_of(ranks)
    history = model.fit(x[rows], y[rows], batch_size=PER_RANK * len(ranks), epochs=EPOCHS, shuffle=False,
                        verbose=0, callbacks=list(callbacks))
    return model, history.history


def close(got, want, tolerance=1e-4):
    assert np.allclose(got, want, rtol=tolerance, atol=tolerance), f"rank {rank}: {got}, want {want}"


def trainings():
    everybody = list(range(size))
    alone, want = trained(lambda optimizer: optimizer, everybody, 5)
    first = model_of(5).get_weights()
    callbacks = hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()
    for options in ({}, {"gradient_predivide_factor": 2.0}):
        model, got = trained(lambda optimizer: hvd.DistributedOptimizer(optimizer, **options), [rank], 5, callbacks)
        for mine, whole, begin in zip(model.get_weights(), alone.get_weights(), first):
            close(mine, whole)
            assert not np.allclose(whole, begin, rtol=1e-3), "nothing was learned"
        close(got["mae"], want["mae"], 1e-3)  # averaged over the ranks
    assert type(model.optimizer).__name__ == "SGD" and isinstance(model.optimizer, keras.optimizers.SGD)
    # Other weights at first: those of rank 0 after the first batch.
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model, _ = trained(hvd.DistributedOptimizer, [rank], rank, [broadcast])
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    assert (hvd.allgather(weights[None]) == weights).all(), "the ranks have other weights"


def schedules():
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.8, warmup_epochs=2, verbose=1)
    later = hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.8, multiplier=0.1, start_epoch=2)
    _, history = trained(hvd.DistributedOptimizer, [rank], 1, [warmup, later], lr=0.8)
    part = 0.8 / size * (1 * (size - 1) / 2 + 1)
    close(history["lr"], [part, 0.8, 0.8, 0.08])


def values():
    close(hvd.allreduce(float(rank)), (size - 1) / 2)
    close(hvd.allreduce(np.array([rank]), average=False), [size * (size - 1) / 2])
    close(hvd.allgather(np.array([rank])), np.arange(size))
    close(hvd.broadcast(np.array([rank]), 1), [1])


def elastic(folder, victim):
    model = model_of(rank)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer=optimizer, loss="mse")
    state = hvd.elastic.KerasState(model, optimizer=model.optimizer, batch=0, epoch=0)

    class Dies(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            marker = os.path.join(folder, "dead")
            if state.epoch == 1 and hvd.rank() == victim and not os.path.exists(marker):
                open(marker, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)

    @hvd.elastic.run
    def train(state):
        rows = rows_of([hvd.rank()])
        model.fit(x[rows], y[rows], batch_size=PER_RANK, epochs=EPOCHS - state.epoch, shuffle=False, verbose=0,
                  callbacks=[hvd.elastic.UpdateEpochStateCallback(state), Dies(),
                             hvd.elastic.CommitStateCallback(state, batches_per_commit=1000)])
    train(state)
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    assert (hvd.allgather(weights[None]) == weights).all(), "the ranks have other weights"
    if hvd.rank() == 0:
        np.save(os.path.join(folder, "weights.npy"), weights)
    print(f"rank {hvd.rank()} ended in epoch {state.epoch}", flush=True)


if sys.argv[2:]:
    elastic(sys.argv[2], None if sys.argv[3] == "none" else int(sys.argv[3]))
else:
    for part in trainings, schedules, values:
        part()
        if rank == 0:
            print(part.__name__, "is right", flush=True)

"""Horovod's API for TensorFlow, beside what must come out of it. usage: horovod_tensorflow.py [lose]"""

import os
import signal
import sys
import time

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
total = size * (size + 1) / 2


def equal(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert np.allclose(got, want, rtol=1e-5), f"rank {rank}: {got}, want {want}"


def refused(kind, words, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"not refused: {words}")


def collectives():
    for in_graph in (lambda f: f), tf.function:
        for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8):
            x = tf.cast(tf.fill([2, 3], rank + 1), dtype)
            for op, want in ((hvd.Sum, total), (hvd.Max, size), (hvd.Min, 1)):
                got = in_graph(lambda x, op=op: hvd.allreduce(x, op=op))(x)
                assert got.dtype == dtype and got.shape == (2, 3)
                equal(tf.cast(got, tf.float64), np.full((2, 3), want))
        x = tf.fill([3], rank + 1.0)
        equal(in_graph(hvd.allreduce)(x), [total / size] * 3)
        equal(in_graph(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16))(x), [total] * 3)
        equal(in_graph(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0))(x),
              [6 * total] * 3)
        one, other = in_graph(lambda: hvd.grouped_allreduce([x, tf.constant([rank])], op=hvd.Sum))()
        equal(one, [total] * 3)
        equal(other, [total - size])
        equal(in_graph(lambda: hvd.allgather(tf.fill([rank + 1, 2], rank)))()[:, 0],
              np.repeat(np.arange(size), np.arange(size) + 1))
        equal(in_graph(lambda: hvd.broadcast(x, 1))(), [2.0] * 3)
        equal(in_graph(lambda: hvd.alltoall(tf.range(size) + 10 * rank))(), 10 * np.arange(size) + rank)
        splits = [p + rank for p in range(size)]
        sent = np.repeat(100 * rank + np.arange(size), splits)
        got, received = in_graph(lambda: hvd.alltoall(tf.constant(sent), splits=tf.constant(splits)))()
        equal(received, np.arange(size) + rank)
        equal(got, np.repeat(100 * np.arange(size) + rank, np.arange(size) + rank))
        equal(in_graph(lambda: hvd.reducescatter(tf.fill([size, 2], rank + 1.0), op=hvd.Sum))(), [[total] * 2])
        slices = tf.IndexedSlices(tf.fill([1, 2], rank + 1.0), tf.constant([rank]), tf.constant([size, 2]))
        equal(in_graph(lambda: tf.convert_to_tensor(hvd.allreduce(slices)))(),
              np.outer(np.arange(1, size + 1) / size, [1, 1]))
        equal(in_graph(hvd.rank_op)(), rank)
        equal(in_graph(hvd.size_op)(), size)
        equal(in_graph(hvd.process_set_included_op)(), 1)
    refused(hvd.HorovodInternalError, "disagree on the shape", hvd.allreduce, tf.ones(1 + (rank == 0)), name="shapes")
    refused(tf.errors.OpError, "disagree on the shape",
            tf.function(lambda: hvd.allreduce(tf.ones(1 + (rank == 0)), name="s")))
    first = hvd.add_process_set([0])
    if first.included():
        equal(hvd.allreduce(tf.ones(1), op=hvd.Sum, process_set=first), [1.0])


def derivatives():
    def gradient(call, x, incoming):
        @tf.function
        def of(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = call(x)
            return tape.gradient(y, x, output_gradients=incoming)
        return of(x)
    g = tf.fill([2], rank + 1.0)
    equal(gradient(hvd.allreduce, tf.ones(2), g), [total / size] * 2)
    equal(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), tf.ones(2), g), [total] * 2)
    parts = tf.constant(np.repeat(np.arange(size), np.arange(size) + 1), tf.float32)
    equal(gradient(hvd.allgather, tf.ones(rank + 1), parts), [rank] * (rank + 1))
    equal(gradient(lambda x: hvd.broadcast(x, 1), tf.ones(2), g), [total / size if rank == 1 else 0.0] * 2)
    equal(gradient(lambda x: hvd.alltoall(x, splits=[2] * size)[0], tf.ones(2 * size), tf.fill([2 * size], rank + 1.0)),
          np.repeat(np.arange(1, size + 1), 2))
    # As Horovod defines it.
    for op, factor in ((hvd.Average, 1), (hvd.Sum, size)):
        equal(gradient(lambda x: hvd.reducescatter(x, op=op), tf.ones(size), tf.constant([rank + 1.0])),
              factor * np.arange(1, size + 1))


def data():
    x = np.random.default_rng(1).normal(size=(8 * size, 4)).astype(np.float32)
    return x, x.sum(1, keepdims=True)


def tapes():
    x, y = data()
    mine = slice(8 * rank, 8 * rank + 8)

    def trained(wrap, rows):
        w, table = tf.Variable(tf.ones([4, 1])), tf.Variable(tf.zeros([5, 1]))

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                error = x[rows] @ w + tf.gather(table, [0, 3]) [0] - y[rows]
                loss = tf.reduce_mean(error ** 2)
            gw, gt = wrap(tape).gradient(loss, [w, table])
            w.assign_sub(0.1 * gw)
            table.assign_sub(0.1 * tf.convert_to_tensor(gt))
        for _ in range(5):
            step()
        return w.numpy(), table.numpy()
    want = trained(lambda tape: tape, slice(None))
    for options in ({}, {"sparse_as_dense": True}, {"gradient_predivide_factor": 2.0}):
        for got, alone in zip(trained(lambda tape: hvd.DistributedGradientTape(tape, **options), mine), want):
            equal(got, alone)
    # Within a process set; the other ranks train alone.
    even = hvd.add_process_set(range(0, size, 2))
    w = tf.Variable([rank + 1.0])
    for options in ({}, {"sparse_as_dense": True}):
        with hvd.DistributedGradientTape(tf.GradientTape(), process_set=even, **options) as tape:
            loss = w * w
        mean = sum(2.0 * (r + 1) for r in even.ranks) / even.size() if even.included() else 2.0 * (rank + 1)
        equal(tape.gradient(loss, [w])[0], [mean])
    hvd.remove_process_set(even)


def everybody_the_same():
    variables = [tf.Variable([rank + 1.0]), tf.Variable(rank)]
    hvd.broadcast_variables(variables, root_rank=1)
    equal(variables[0], [2.0])
    equal(variables[1], 1)
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object(rank) == list(range(size))
    if rank == 0:
        equal(hvd.allreduce(tf.ones(1), op=hvd.Sum, name="alone"), [1.0])
    assert hvd.join() in range(size)


for part in collectives, derivatives, tapes, everybody_the_same:
    part()
    if rank == 0:
        print(part.__name__, "is right", flush=True)
if sys.argv[1:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's SIGTERM may come before the error
hvd.barrier()
if sys.argv[1:]:
    if rank == 1:  # once the others have come so far
        while not all(os.path.exists(f"ready.{other}") for other in range(size) if other != 1):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    open(f"ready.{rank}", "x").close()
    refused(hvd.HorovodInternalError, "rank 1 (pid", hvd.allreduce, tf.ones(1))
    refused(hvd.HorovodInternalError, "rank 1 (pid", hvd.allreduce, tf.ones(1))
    print("told", flush=True)
    os._exit(3)

# TensorFlow: programs find the other workers by TF_CONFIG, which dlaunch sets when they import TensorFlow. The losses
# equal those of one worker, the report names a killed rank, and BackupAndRestore continues after a restart.
source "$SOURCE/tests/scenario/common.sh"
python=${TF_PYTHON:-/usr/bin/python3}
"$python" -c 'import tensorflow, tf_keras' 2>/dev/null || skip "no TensorFlow is here: TF_PYTHON names a Python that has it, and tf_keras"
install_beside tensorflow
export TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=-1

cat >data.py <<'P'
import numpy as np, tensorflow as tf
BATCH = 16
rng = np.random.default_rng(1)
x = rng.normal(size=(64, 8)).astype("float32")
y = (x @ rng.normal(size=(8, 1))).astype("float32")
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).with_options(options)
def made(keras):
    start = keras.initializers.GlorotUniform
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, activation="tanh", kernel_initializer=start(seed=1)),
                             keras.layers.Dense(1, kernel_initializer=start(seed=2))])
P
cat >fit.py <<'P'
import os, signal, sys
import tensorflow as tf, tf_keras as keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from data import data, made
with strategy.scope():
    model = made(keras)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, flush=True)
        if epoch == 2 and os.environ["RANK"] == "1" and os.environ["DLAUNCH_ROUND"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
kept = [keras.callbacks.BackupAndRestore(sys.argv[1]), Kill()] if sys.argv[1:] else []
losses = model.fit(data, epochs=3, verbose=0, callbacks=kept).history["loss"]
print("losses", strategy.num_replicas_in_sync, *(f"{loss:.4f}" for loss in losses), flush=True)
P
# A training loop of the program's own, with Keras 3, whose fit() does not support multi-worker strategies.
cat >loop.py <<'P'
import numpy as np, tensorflow as tf, keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from data import BATCH, data, made
with strategy.scope():
    model = made(keras)
    optimizer = keras.optimizers.SGD(0.1)
    loss_of = keras.losses.MeanSquaredError(reduction="none")
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(loss_of(y, model(x, training=True)), global_batch_size=BATCH)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
@tf.function
def train(x, y):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(step, (x, y)), axis=None)
parts = strategy.experimental_distribute_dataset(data)
losses = [np.mean([float(train(x, y)) for x, y in parts]) for epoch in range(3)]
print("losses", strategy.num_replicas_in_sync, *(f"{loss:.4f}" for loss in losses), flush=True)
P
losses() { grep -o "losses $1 .*" out | cut -d' ' -f3- | sort -u; }
for program in fit loop; do
  run dlaunch --nproc 1 "$python" $program.py; expect_code 0; alone=$(losses 1)
  for ranks in 2 4; do
    run dlaunch --nproc $ranks "$python" $program.py; expect_code 0
    [ "$(grep -c "losses $ranks " out)" = $ranks ] || fail "$program: not $ranks workers"
    [ "$(losses $ranks)" = "$alone" ] || fail "$program: $ranks workers have other losses than $alone"
  done
done

run dlaunch --nproc 2 "$python" fit.py "$PWD/none"
expect_code 137; expect_err 'rank 1 \(.*failed first: killed by SIGKILL'
run dlaunch --nproc 2 --max-restarts 1 "$python" fit.py "$PWD/kept"
expect_code 0; [ "$(grep -c 'epoch 0' out)" = 2 ] || fail "it began from nothing"
[ "$(losses 2 | wc -l)" = 1 ] || fail "the workers differ"

# Parameter servers and workers that never end, and a chief that gives them work.
cat >servers.py <<'P'
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)
@tf.function
def step():
    total.assign_add(1.0)
for _ in range(20):
    coordinator.schedule(step)
coordinator.join()
print("sum", total.numpy(), flush=True)
P
run dlaunch --roles chief,worker=2,ps "$python" servers.py; expect_code 0; expect_out '^\[0\] sum 20'

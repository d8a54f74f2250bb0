# Horovod's API for TensorFlow and Keras, under --horovod: every collective eagerly and in a tf.function, tapes,
# trainings with Keras 3 and tf_keras, and an elastic one.
source "$SOURCE/tests/scenario/common.sh"
python=${TF_PYTHON:-/usr/bin/python3}
"$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is None)' ||
  skip "no TensorFlow is here: TF_PYTHON names a Python that has it"
need_package
export PYTHONPATH="$BUILD/python${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
export TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=-1
here=$SOURCE/tests/scenario

run dlaunch --nproc 4 --horovod "$python" "$here/horovod_tensorflow.py" lose
expect_code 137; expect_err 'rank 1 .*failed first: killed by SIGKILL'
for part in collectives derivatives tapes everybody_the_same; do expect_out "^\[0\] $part is right$"; done
[ "$(grep -c 'told$' out)" = 3 ] || fail "not every rank has learned of the lost one"

keras() {
  run dlaunch --nproc 2 --horovod "$@"
  expect_code 0; for part in trainings schedules values; do expect_out "^\[0\] $part is right$"; done
  expect_out 'Epoch 2: finished gradual learning rate warmup to 0.8'
  [ "$(grep -c 'finished gradual' out)" = 1 ] || fail "another rank than 0 has said that the warmup is over"
}
keras "$python" "$here/horovod_keras.py" horovod.keras
keras -x TF_USE_LEGACY_KERAS=1 "$python" "$here/horovod_keras.py" horovod.tensorflow.keras

# A rank is killed in the second epoch: the training continues from the end of the first.
# elastic FOLDER VICTIM OPTIONS…: runs a training that kills this rank.
elastic() {
  mkdir "$1"
  run dlaunch --nproc 2 --horovod "${@:3}" "$python" "$here/horovod_keras.py" horovod.tensorflow.keras "$1" "$2"
  expect_code 0
}
elastic quiet none
elastic killed 0 --max-restarts 1
expect_err 'rank 0 .*killed by SIGKILL'
"$python" -c 'import numpy as np
quiet, killed = np.load("quiet/weights.npy"), np.load("killed/weights.npy")
np.testing.assert_allclose(quiet, killed, rtol=1e-5)' || fail "a killed rank has changed the weights"

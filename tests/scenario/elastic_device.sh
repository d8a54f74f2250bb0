# The state of an elastic program on GPUs, by look-alikes of CUDA and NCCL: what is lost with a
# worker comes back on the newcomer's GPU, and what survivors have changed is as it was committed.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/elastic_device_worker
[ -x "$worker" ] || skip "built without the headers of CUDA and NCCL"
export LD_LIBRARY_PATH=$BUILD/tests/support/fake_gpu:$LD_LIBRARY_PATH
# all_right N FROM: so many ranks, of which the later round went on from step FROM.
all_right() {
  expect_code 0
  [ "$(grep -c "of $1: step 12 right" out)" = "$1" ] || { cat out err; fail "not $1 ranks that are right"; }
  [ $# = 1 ] || [ "$(grep -Ec "round [2-9] rank . of $1: from step $2\$" out)" = "$1" ] || { cat out; fail "not on from step $2"; }
}

run dlaunch --nproc 3 --max-restarts 1 "$worker" --die-at 7:1; all_right 3 '[67]'
run dlaunch --nproc 3 --max-restarts 1 "$worker" --die-at 7:0 --share-gpu 1; all_right 3 '[67]'
run dlaunch --nproc 2 --max-restarts 1 "$worker" --die-at 7:1 --in-place 1; all_right 2 7

# All of them: the next job begins with the snapshot.
run dlaunch --nproc 2 "$worker" --snapshot kept --steps 8; expect_code 0
run dlaunch --nproc 2 "$worker" --snapshot kept; all_right 2
[ "$(grep -c 'of 2: from step 8$' out)" = 2 ] || { cat out; fail "not begun with the snapshot"; }

# Training: the losses do not depend on the number of workers, two runs are equal bit for bit, only rank 0
# writes the model, and the loss of a worker ends the job with a report that names it.
source "$SOURCE/tests/scenario/common.sh"
train=$BUILD/examples/train_fashion_mnist
[ -x "$train" ] || skip "Eigen or zlib is not installed"
[ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"

source "$SOURCE/tests/scenario/curves.sh"

for n in 1 2 4; do
  for again in a b; do
    run dlaunch --nproc $n "$train" --epochs 2 --batch 128 --limit 8000 --losses losses.$n.$again --model model.$n.$again
    expect_code 0
  done
  cmp losses.$n.a losses.$n.b || fail "two runs with $n workers differ in their losses"
  cmp model.$n.a model.$n.b || fail "two runs with $n workers differ in their models"
done
for n in 2 4; do
  same_curve 126 losses.1.a losses.$n.a || fail "the loss curves of 1 and $n workers part"
done

# A run prints the output that the example's header shows.
mkdir header && cp "$SOURCE/examples/train_fashion_mnist.cc" header && ln -s "$train" header || fail "no copy"
run python3 "$SOURCE/tests/scenario/examples.py" --only '^dlaunch' header/train_fashion_mnist.cc; expect_code 0

# Shares of different size count by their number of images, also if a rank has none.
for n in 1 3 9; do
  run dlaunch --nproc $n "$train" --epochs 1 --batch 100 --limit 1005 --losses losses.$n
  expect_code 0
done
for n in 3 9; do
  same_curve 11 losses.1 losses.$n || fail "the loss curves of 1 and $n workers part with uneven shares"
done
# The CUDA trainer on imitations of CUDA and NCCL, where the host runs its kernels: with one rank, with three
# ranks and a GPU each, and with three ranks that share a GPU, so that gradients go through the host.
fake=$BUILD/tests/support/fake_gpu/train_on_fake_gpu
if [ -x "$fake" ]; then
  small=(--epochs 1 --batch 100 --limit 1005 --hidden 16)  # one thread of the host is much slower than a GPU
  run dlaunch --nproc 1 "$train" "${small[@]}" --losses losses.cpu; expect_code 0
  for case in 1:0 3:0,1,2 3:0; do
    LD_LIBRARY_PATH=$(dirname "$fake"):$LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES=${case#*:} DLAUNCH_DEBUG=explain \
      run dlaunch --nproc ${case%:*} "$fake" "${small[@]}" --losses losses.cuda --model cuda.model
    expect_code 0
    same_curve 11 losses.cpu losses.cuda || fail "the CUDA trainer has other losses: $case"
    [ $case != 3:0,1,2 ] || expect_err 'all_reduce of 12731 float on a GPU: NCCL'
    [ $case != 3:0 ] || expect_err "on a GPU: through the host's memory, because .* share one GPU"
  done
  [ "$(stat -c %s cuda.model)" = 50920 ] || fail "the CUDA trainer's model has the wrong size"
fi
# Without a GPU the trainer says so, and has an exit code of its own.
for train_cuda in "$fake" "$BUILD/examples/train_fashion_mnist_cuda"; do
  [ -x "$train_cuda" ] || continue
  CUDA_VISIBLE_DEVICES='' run "$train_cuda" --limit 128
  expect_code 69; expect_err '^train_fashion_mnist_cuda: no GPU: .'
  [ "$(wc -l < err)" = 1 ] || fail "more than one line"
  run "$train_cuda" --commit-every 2; expect_code 64; expect_err 'unknown flag --commit-every'
done
[ "$(stat -c %s model.4.a)" = 407080 ] || fail "the model has the wrong size"
[ -z "$(ls model.*.new 2>/dev/null)" ] || fail "a temporary model was left"

run "$train" --limit abc; expect_code 64; expect_err "'abc'"
run "$train" --limit 128 --losses /no/such/folder/x; expect_code 1; expect_err 'cannot write the losses'
run "$train" --limit 128 --epochs 1 --model /no/such/folder/x; expect_code 1; expect_err 'cannot write the model'
run dlaunch --nproc 2 "$train" --data /no/such/folder
expect_code 1; expect_err 'dataset-fashion-mnist'
run dlaunch --nproc 3 bash -c '[ $RANK = 1 ] && { "$0" --epochs 50 & until [ -e kill ]; do read -rt 0.01 <> <(:); done; kill -9 0; }; [ $RANK = 0 ] && { "$0" --epochs 50 | while read -r line; do touch kill; done; exit ${PIPESTATUS[0]}; }; exec "$0" --epochs 50' "$train"
expect_code 137; expect_err 'rank 1 .* failed first: killed by SIGKILL'

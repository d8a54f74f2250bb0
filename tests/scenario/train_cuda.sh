# The CUDA trainer on a GPU: with one rank, and with two that may share it, its losses are those of the
# CPU trainer up to rounding, and two runs are equal.
source "$SOURCE/tests/scenario/common.sh"
train=$BUILD/examples/train_fashion_mnist_cuda
[ -x "$train" ] || skip "nvcc is not installed"
[ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"
flags=(--epochs 2 --batch 128 --limit 8000)
run "$train" "${flags[@]}" --losses one
[ "$code" != 69 ] || skip "$(cat err)"
expect_code 0
source "$SOURCE/tests/scenario/curves.sh"
run dlaunch --nproc 2 train_fashion_mnist "${flags[@]}" --losses cpu; expect_code 0
for again in a b; do
  run dlaunch --nproc 2 "$train" "${flags[@]}" --losses two.$again; expect_code 0
done
cmp two.a two.b || fail "two runs differ in their losses"
same_curve 126 cpu one 1e-3 || fail "one rank has other losses than the CPU"
same_curve 126 cpu two.a 1e-3 || fail "two ranks have other losses than the CPU"

# DistributedDataParallel with gradients in few bits: all ranks have equal weights, with the loss of exact gradients. A
# lost worker ends the step of the others.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
has_torch "$python" || skip "PyTorch is not installed"
compgen -G "$BUILD/python/dlaunch/torch/*dlring_torch*.so" >/dev/null ||
  skip "dlaunch.torch was not built: it needs libtorch-dev and pybind11-dev"
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
here=$SOURCE/tests/scenario

weights() { sed -nE 's/.* weights ([0-9a-f]+)$/\1/p' out | sort -u; }
loss() { sed -nE 's/^\[0\] loss ([0-9.]+) .*/\1/p' out; }
run dlaunch --nproc 2 "$python" "$here/pytorch_compression.py" exact dlring; expect_code 0
exact=$(weights); exact_loss=$(loss)
for how in 'bf16 dlring' 'int8 dlring' 'fp8 dlring' 'int4 dlring' 'int4 gloo'; do
  run dlaunch --nproc 2 "$python" "$here/pytorch_compression.py" $how; expect_code 0
  [ "$(weights)" != "$exact" ] || fail "$how: the gradients are exact"
  awk -v is="$(loss)" -v exact="$exact_loss" 'BEGIN { exit !(is > 0.9 * exact && is < 1.1 * exact) }' ||
    fail "$how: the loss is $(loss), and exact gradients give $exact_loss"
done
run dlaunch --nproc 2 --grace 20s "$python" "$here/pytorch_compression.py" int4 dlring die; expect_code 137
expect_err '^\[0\] backward ends with .*rank 1 \(pid [0-9]+ on [^ )]+\)'

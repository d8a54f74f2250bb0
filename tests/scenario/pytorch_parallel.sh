# FSDP, FSDP2, DTensor, tensor parallel, pipelining, ZeroRedundancyOptimizer, DDP's hooks, functional
# collectives under torch.compile and torch.distributed.checkpoint on libdlring. They need a newer PyTorch
# than Debian's: TORCH_PYTHON names one, and the build is for it.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'import torch.distributed.fsdp, torch.distributed.tensor, torch.distributed.pipelining' 2>/dev/null ||
  skip "this PyTorch has no FSDP2, DTensor and pipelining: TORCH_PYTHON names a Python with a newer one"
need_torch_built
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
run dlaunch --nproc 4 "$python" "$SOURCE/tests/scenario/pytorch_parallel.py"
expect_code 0
[ "$(grep -c 'is right$' out)" = 28 ] || fail "not every rank was right"

# dlring_torch for a release of PyTorch that it has no library for: it compiles one where its source lies
# beside it, once, and says which releases it serves where it cannot.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'import torch.distributed' 2>/dev/null || skip "PyTorch is not installed"
release=$("$python" -c 'import torch; print(".".join(torch.__version__.split(".")[:2]))')
mkdir modules && cp "$SOURCE/ring/torch/dlring_torch.py" modules
touch modules/libdlring_torch-0.{9,12}.so
export PYTHONPATH=$PWD/modules XDG_CACHE_HOME=$PWD/cache PYTHONWARNINGS=ignore

run "$python" -c 'import dlring_torch'
expect_code 1
expect_err "ImportError: dlring_torch has no library for PyTorch $release.*, and its source is not here. It serves PyTorch 0.9, 0.12$"
python3 "$SOURCE/ring/torch/build_release.py" --copy-source modules/dlring_torch_source || fail "the source was not copied"
run env CXX=false "$python" -c 'import dlring_torch'
expect_code 1; expect_err "^dlring_torch compiles its library for PyTorch $release"
expect_err 'ImportError: .* cannot be compiled: the compiler failed'
[ -z "$(find cache -name '*.so')" ] || fail "a library is there that was not compiled"

case $release in 1.* | 2.[0-3]) exit 0 ;; esac
readlink -f "$BUILD/ring" >modules/dlring_torch_source/ring_folders
cat >alone.py <<'P'
import torch, torch.distributed as dist, dlring_torch
dist.init_process_group("dlring", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
print("works", x.sum().item())
P
for turn in compiles finds; do
  run "$python" alone.py
  expect_code 0; expect_out '^works 3.0$'
  [ $turn = compiles ] && expect_err 'compiles its library'
done
[ ! -s err ] || fail "the second time it said something"

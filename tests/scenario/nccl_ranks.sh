# NCCL between ranks that share one GPU. NCCL refuses that on one host, so NCCL_HOSTID makes each rank a host of its own,
# and the data pass through sockets. Every call, type and op is right, a lost rank is named, and an elastic training in
# PyTorch ends with the same weights as one without a loss.
source "$SOURCE/tests/scenario/common.sh"
run dlaunch --nproc 1 dlaunch-bench all_reduce --device cuda -b 8 -n 1
[ "$code" = 0 ] || skip "no GPU: $(grep -o 'device cuda: .*' err | head -n 1)"
python=${TORCH_PYTHON:-/usr/bin/python3}
nccl=$("$python" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null) &&
  export LD_LIBRARY_PATH=$nccl/lib:$LD_LIBRARY_PATH
alone='NCCL_HOSTID=host${rank}'
measure() { run dlaunch --nproc 2 --env "$alone" --env DLAUNCH_DEBUG=explain --output raw dlaunch-bench --device cuda "$@" -n 1 -w 0; }
measure all_reduce -b 8
grep -q "there is no libnccl" err && skip "no NCCL"
expect_code 0; expect_err '^dlaunch: GPU memory: NCCL [0-9.]+$'

for c in all_reduce reduce_scatter all_gather broadcast reduce gather scatter alltoall sendrecv; do
  measure $c -b 4 -e 300K -f 300 -d all -o all -r 1
  expect_code 0; expect_out 'Out of bounds values : 0 OK'
done

run timeout 60 dlaunch --nproc 3 --env "$alone" --chaos kill=1s dlaunch-bench all_reduce --device cuda -b 1M -n 1000000
expect_code 137; expect_err 'rank [0-2] \(.*\) failed first: --chaos sent it SIGKILL'
expect_err 'lost rank [0-2] \(libdlring\)'

"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || exit 0
torch_built || exit 0
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore DEVICE=cuda FIRST_WEIGHTS=1
mkdir quiet again
train() { run dlaunch --nproc 3 --env "$alone" --env DLAUNCH_DEBUG=explain "$@"; expect_code 0; expect_err 'broadcast of .* on a GPU: NCCL'; }
train "$python" "$SOURCE/tests/scenario/pytorch_state.py" --folder quiet --weights quiet.pt
expect_out 'steps 30 commits 31 again 0'
train --max-restarts 3 "$python" "$SOURCE/tests/scenario/pytorch_state.py" --folder again --die 13:1 --weights again.pt
expect_out 'steps 30'
cat > equal.py <<'P'
import torch
(a, *_), (b, *_) = (torch.load(f, map_location="cpu") for f in ("quiet.pt", "again.pt"))
for name in a:
    assert torch.equal(a[name], b[name]), name
P
run "$python" equal.py; expect_code 0

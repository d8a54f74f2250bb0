# NCCL itself loads dlaunch's profiler plug-in, and the record names the rank that lacks a collective: with the calls alone,
# and with the events of kernels. The ranks share one GPU, so NCCL_HOSTID makes each a host of its own.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || skip 'no GPU, or no PyTorch that uses it'
"$python" -c 'import sys, torch; sys.exit(torch.cuda.nccl.version() < (2, 26))' || skip "the NCCL of this PyTorch is older than 2.26"
cat >train.py <<'P'
import os, time
import torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
x = torch.ones(1000, device="cuda")
for step in range(1, 21):
    if step == 3 and dist.get_rank() == 1 and os.environ.get("HANGS"):
        time.sleep(1000)
    dist.all_reduce(x)
torch.cuda.synchronize()
print("recorded by", os.environ["NCCL_PROFILER_PLUGIN"], flush=True)
dist.destroy_process_group()
P
for record in calls kernels; do
  job() { run dlaunch --nproc 2 --env 'NCCL_HOSTID=host${rank}' --env NCCL_DEBUG=INFO --nccl-record $record "$@" "$python" train.py; }
  job; expect_code 0; grep -qE 'Loaded dlaunch|loaded external profiler plugin' out err || fail 'NCCL has not loaded the plug-in'
  # Without PyTorch's own recorder only NCCL's record tells the ranks apart.
  HANGS=1 job --env TORCH_FR_BUFFER_SIZE=0 --env TORCH_NCCL_TRACE_BUFFER_SIZE=0 --hang-timeout 15s --timeout 150s
  expect_code 137; expect_err 'rank 1 has not enqueued collective #3, all_reduce \(count 1000, float\), on NCCL communicator'
done

# Ranks of PyTorch on Gloo give up waiting in a collective: the report names the rank that does not come.
source "$SOURCE/tests/scenario/verdict.sh"
need_torch
cat >stuck.py <<'P'
import datetime, os
import torch, torch.distributed as dist
from stuck_rank import get_stuck

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=3))
dist.barrier()
if dist.get_rank() == int(os.environ["CULPRIT"]):
    get_stuck(os.environ["KIND"])
dist.all_reduce(torch.ones(10), group=group)
P
for kind in ${GLOO_KINDS:-$kinds}; do found "$kind" 1 1 "$python" stuck.py; done
expect_err 'first to give up waiting for .*rank 1'
random_culprits 0 1 "$python" stuck.py

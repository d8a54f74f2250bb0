# A plain PyTorch script that reads its rank from the environment runs unchanged.
source "$SOURCE/tests/scenario/common.sh"
has_torch /usr/bin/python3 || skip "PyTorch is not installed"

cat > script.py <<'P'
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(x)
assert x.eq(10).all(), x
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", x[0].item())
dist.barrier()
P
run dlaunch --nproc 4 /usr/bin/python3 script.py
expect_code 0
for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4 sum 10.0$"; done

# IPv6's loopback as the rendezvous.
run dlaunch --nproc 4 --master-addr ::1 /usr/bin/python3 script.py
expect_code 0
for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4 sum 10.0$"; done

# The report shows the failing rank's traceback as the cause, and not the broken connections of the others.
sed -i 's/^x = .*/&\nif dist.get_rank() == 2: raise ValueError("bad batch")/' script.py
run dlaunch --nproc 4 /usr/bin/python3 script.py
expect_code 1; expect_err 'rank 2 .* failed first'; expect_err 'ValueError: bad batch'

# PyTorch on libdlring: every call of torch.distributed gives the right result. DDP reaches the same weights
# as on gloo, also under torchrun. Ranks that wait for a killed worker get an error.
source "$SOURCE/tests/scenario/common.sh"
need_torch_back_end
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
script=$SOURCE/tests/scenario/pytorch_ring.py

run dlaunch --nproc 4 "$python" "$script" dlaunch.pt 2
expect_code 137; expect_err 'rank 2 .* failed first: killed by SIGKILL'
[ "$(grep -c 'is right$' out)" = 4 ] || fail "not every rank was right"
for r in 0 1 3; do
  for told in 'lost a peer' 'lost it again'; do
    expect_out "^\[$r\] rank $r $told: dlring: .*rank 2 \(pid [0-9]+ on [^ )]+\)"
  done
done

# Without dlaunch the ranks meet by c10d's store.
run "$python" -m torch.distributed.run --nnodes 1 --nproc_per_node 4 --redirects 9:1 --tee 9:1 \
  --monitor_interval 0.1 --rdzv_backend c10d --rdzv_endpoint localhost:0 "$script" torchrun.pt
expect_code 0
# The values of tensors count, and not their layout.
run "$python" -c 'import torch; assert torch.equal(torch.load("dlaunch.pt"), torch.load("torchrun.pt"))'
expect_code 0

# A callback of a future may use the group. A rank that leaves does not abort dropped operations.
cat > leave.py <<'P'
import torch, torch.distributed as dist, dlaunch.torch
dist.init_process_group("dlring")
rank, size = dist.get_rank(), dist.get_world_size()
def sum_again(future):
    return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
for _ in range(20):
    x = torch.ones(1000)
    future = dist.all_reduce(x, async_op=True).get_future().then(sum_again)
    assert future.wait().eq(size * size).all()
if rank == 1:
    dist.isend(torch.ones(3), 0)
if rank == 0:
    dist.recv(torch.ones(3), 1)
for turn in range(3):
    group = dist.new_group()
    dist.barrier(group)
    dist.destroy_process_group(group)
pair = dist.new_group([0, 1])
if rank < 2:
    dist.barrier(pair)
dist.barrier()
dist.destroy_process_group()
print("left", rank)
P
run dlaunch --nproc 3 "$python" leave.py
expect_code 0; [ "$(grep -c left out)" = 3 ] || fail "not all have left"

# The thread that completes collectives keeps one Python thread state as long as it lives. A child that is
# forked while the thread makes or drops one would hang, such as the workers of a DataLoader.
cat > places.py <<'P'
import ctypes, torch, torch.distributed as dist
import dlaunch.torch
api = ctypes.pythonapi
for name in "PyInterpreterState_Head", "PyInterpreterState_ThreadHead", "PyThreadState_Next":
    getattr(api, name).restype = ctypes.c_void_p

def places():
    at, found = api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Head())), []
    while at:
        found.append(at)
        at = api.PyThreadState_Next(ctypes.c_void_p(at))
    return found

before = places()
dist.init_process_group("dlring", store=dist.HashStore(), rank=0, world_size=1)
with_group = places()
assert len(with_group) == len(before) + 1, (before, with_group)
for _ in range(100):
    dist.all_reduce(torch.ones(4), async_op=True)  # the completing thread drops it
assert places() == with_group
dist.barrier()
assert places() == with_group
dist.destroy_process_group()
assert places() == before
P
run "$python" places.py
expect_code 0

# Sizes that do not match are an error of that call, also if one side expects nothing. Otherwise the next
# call would get the remaining data.
cat > splits.py <<'P'
import sys, torch, torch.distributed as dist, dlaunch.torch
dist.init_process_group("dlring")
rank = dist.get_rank()
give, take = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [0, 2])
for call in ("first", "second"):
    out = torch.zeros(sum(take))
    try:
        dist.all_to_all_single(out, torch.full((4,), 100.0 + rank), take, give)
    except RuntimeError as e:
        sys.stdout.write(f"{call}: {str(e).splitlines()[0]}\n")
        break
    give, take = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
P
run dlaunch --nproc 2 "$python" splits.py
expect_code 0; expect_out '\] first: dlring: all_to_all_v #1: rank 0 gives 3 elements to rank 1, which takes 0 from it'

# The benchmark prints a line for each of its parts.
if "$python" -c "from torch.testing._internal.distributed import fake_pg" 2>/dev/null; then
  run dlaunch --nproc 2 "$python" -m dlaunch.torch.bench --rounds 2
  expect_code 0
  for part in 'call 8 B' 'layer 8 KiB' 'layer 64 KiB' 'ddp 25 MB'; do
    expect_out "^\[0\] $part +dlring +[0-9.]+ gloo +[0-9.]+ .* dlring/gloo [0-9.]+$"
  done
  run dlaunch --nproc 1 "$python" -m dlaunch.torch.bench nonsense; expect_code 2; expect_err "invalid choice: 'nonsense'"
fi

# PyTorch on libdlring with tensors on a GPU, which ranks may share. Every call of torch.distributed gives the
# right result. DDP reaches the weights of the CPU, up to rounding. Collectives keep their order among the work of
# a stream. An elastic training that loses a worker loses no step.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
  skip "no PyTorch that finds a GPU"
need_torch_built
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
script=$SOURCE/tests/scenario/pytorch_ring.py

run dlaunch --nproc 4 "$python" "$script" cpu.pt; expect_code 0
DEVICE=cuda run dlaunch --nproc 4 "$python" "$script" cuda.pt 2
expect_code 137; expect_err 'rank 2 .* failed first: killed by SIGKILL'
[ "$(grep -c 'is right$' out)" = 4 ] || fail "not every rank was right"
for r in 0 1 3; do
  expect_out "^\[$r\] rank $r lost it again: dlring: .*rank 2 \(pid [0-9]+ on [^ )]+\)"
done

# Long kernels before a collective, in streams other than the default one, and tensors that the program drops.
cat > streams.py <<'P'
import os, torch, torch.distributed as dist, dlaunch.torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
dist.init_process_group("dlring")
rank, size = dist.get_rank(), dist.get_world_size()
busy = torch.randn(2048, 2048, device="cuda")
streams = [torch.cuda.Stream() for _ in range(3)]
for turn in range(60):
    with torch.cuda.stream(streams[turn % 3]):
        x = torch.zeros(1 << (10 + turn % 12), device="cuda")
        for _ in range(8):
            busy = busy @ busy
            busy /= busy.norm()
        x += rank + turn  # after the long kernels
        dist.all_reduce(torch.ones_like(x), async_op=True)  # dropped
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        want = size * turn + size * (size - 1) / 2
        wrong = int((x != want).sum())
        assert wrong == 0, f"turn {turn}: {wrong} of {x.numel()} wrong"
dist.destroy_process_group()
print("right", rank)
P
for n in 1 3; do
  run dlaunch --nproc $n "$python" streams.py; expect_code 0
  [ "$(grep -c 'right ' out)" = $n ] || fail "not every rank was right"
done

export DEVICE=cuda FIRST_WEIGHTS=1
mkdir quiet again
run dlaunch --nproc 3 "$python" "$SOURCE/tests/scenario/pytorch_state.py" --folder quiet --weights quiet.pt
expect_code 0; expect_out 'steps 30 commits 31 again 0'
run dlaunch --nproc 3 --max-restarts 3 "$python" "$SOURCE/tests/scenario/pytorch_state.py" --folder again \
  --die 13:1 --weights again.pt
expect_code 0; expect_out 'steps 30'
[ "$(grep -l '^begins at 13 ' again/steps.* | wc -l)" = 3 ] || fail "not all went on after 13 steps"
cat > near.py <<'P'
import torch
a, b = (torch.load(f, map_location="cpu") for f in ("cpu.pt", "cuda.pt"))
assert (a - b).abs().max() < 1e-4, (a - b).abs().max()
(a, *_), (b, *_) = (torch.load(f, map_location="cpu") for f in ("quiet.pt", "again.pt"))
for name in a:
    assert torch.equal(a[name], b[name]), name
P
run "$python" near.py; expect_code 0

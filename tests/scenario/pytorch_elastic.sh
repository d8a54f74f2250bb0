# A DistributedDataParallel script in torchrun's elastic pattern saves and loads its own checkpoint. dlaunch
# restarts it as torchrun does: all workers, with the same environment. It reaches the same weights.
source "$SOURCE/tests/scenario/common.sh"
has_torch /usr/bin/python3 || skip "PyTorch is not installed"

cat > script.py <<'P'
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
folder, fails = sys.argv[1], sys.argv[2:]  # fails: "EPOCH:RANK:RESTARTS"
torch.manual_seed(1)
dist.init_process_group("gloo")
rank, restarts = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
checkpoint, begin = folder + "/checkpoint.pt", 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    begin = saved["epoch"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
sys.stdout.write(f"rank {rank} of {dist.get_world_size()} begins with epoch {begin}, restarts "
                 f"{restarts} of {os.environ['TORCHELASTIC_MAX_RESTARTS']}\n")  # one write for the line
sys.stdout.flush()
for epoch in range(begin, 6):
    for step in range(4):
        if f"{epoch}:{rank}:{restarts}" in fails and step == 2:
            os._exit(3) if epoch < 4 else os.kill(os.getpid(), 9)
        data = torch.randn(16, 8, generator=torch.Generator().manual_seed(epoch * 100 + step * 10 + rank))
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    if rank == 0:
        torch.save({"epoch": epoch + 1, "model": model.state_dict(),
                    "optimizer": optimizer.state_dict()}, checkpoint + ".new")
        os.rename(checkpoint + ".new", checkpoint)
    dist.barrier()
if rank == 0:
    print("weights", [value.hex() for value in model.module.weight.flatten().tolist()])
P
export OMP_NUM_THREADS=1
mkdir quiet failing torchrun
run dlaunch --nproc 2 /usr/bin/python3 script.py quiet; expect_code 0
weights=$(grep -o 'weights .*' out) || fail "no weights"

run dlaunch --nproc 2 --max-restarts 3 /usr/bin/python3 script.py failing 2:1:0 4:0:1
expect_code 0
[ "$(grep -o 'weights .*' out)" = "$weights" ] || fail "not the weights of an undisturbed run"
for begins in 'epoch 0, restarts 0' 'epoch 2, restarts 1' 'epoch 4, restarts 2'; do
  [ "$(grep -c "of 2 begins with $begins of 3" out)" = 2 ] || fail "not both began with $begins"
done
expect_err 'rank 1 .* exit code 3 .*restarting all workers: round 2, 1 of 3'
expect_err 'rank 0 .* killed by SIGKILL .*restarting all workers: round 3, 2 of 3'

# The result of torchrun.
run /usr/bin/python3 -m torch.distributed.run --nnodes 1 --nproc_per_node 2 --max_restarts 3 \
  --monitor_interval 0.1 --redirects 9:1 --tee 9:1 --rdzv_backend c10d --rdzv_endpoint localhost:0 \
  script.py torchrun 2:1:0 4:0:1
expect_code 0
[ "$(grep -o 'weights .*' out)" = "$weights" ] || fail "torchrun comes to other weights"
for begins in 'epoch 0, restarts 0' 'epoch 2, restarts 1' 'epoch 4, restarts 2'; do
  [ "$(grep -c "of 2 begins with $begins of 3" out)" = 2 ] || fail "under torchrun not both began with $begins"
done

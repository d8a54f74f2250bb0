# c10d's recovery API on libdlring: members find each other by handles, without a store and without the
# launcher. A member is killed and the others continue, a new process joins, and an error names a member that
# does not come.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'import torch.distributed as d; d._reconfigure' 2>/dev/null || skip "this PyTorch has no recovery API"
need_torch_built
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore MASTER_ADDR=127.0.0.1

mkdir told
for name in a b c d e; do
  "$python" "$SOURCE/tests/scenario/pytorch_reconfigure.py" told $name >out.$name 2>&1 </dev/null &
  started+=($!)
done
for i in 0 1 2 3 4; do
  wait "${started[$i]}" 2>/dev/null; code=$?
  cat out.? >out
  [ $i = 3 ] && { expect_code 137; continue; }
  expect_code 0
done
for name in a b c e; do expect_out "^$name is right$"; done

# Ranks of the launcher reconfigure their groups: with the same secret or TLS, and with other ranks. An
# elastic process may not, because the launcher decides about its members.
cat >launched.py <<'P'
import sys, torch, torch.distributed as dist, dlaunch.torch
from dlaunch.torch import elastic
def reversed_ranks():
    rank, size = dist.get_rank(), dist.get_world_size()
    handles = [None] * size
    dist.all_gather_object(handles, dist._get_reconfigure_handle())
    dist._reconfigure(1, handles[::-1], hints={"of": "another"}).wait()
    assert dist.get_rank() == size - 1 - rank
    x = torch.tensor([float(rank)])
    dist.broadcast(x, 0)
    assert x.item() == size - 1
    dist.barrier()
def train(state):
    assert not dist._supports_reconfigure()
    try:
        dist._get_reconfigure_handle()
    except ValueError as e:
        assert "dlaunch.torch.elastic" in str(e), e
        return
    raise AssertionError("an elastic process has a handle")
if sys.argv[1] == "elastic":
    elastic.run(train)(elastic.TorchState(x=torch.zeros(1)))
else:
    dist.init_process_group("dlring")
    reversed_ranks()
    dist.destroy_process_group()
print("right")
P
for options in "" "--tls"; do
  run dlaunch --nproc 3 $options "$python" launched.py plain
  expect_code 0; [ "$(grep -c 'right$' out)" = 3 ] || fail "not all ranks were right"
  expect_err "it has no hints, and ignores these, as 'of'"
done
run dlaunch --nproc 2 --max-restarts 1 "$python" launched.py elastic
expect_code 0; [ "$(grep -c 'right$' out)" = 2 ] || fail "not all elastic ranks were right"

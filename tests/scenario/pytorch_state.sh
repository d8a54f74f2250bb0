# A DistributedDataParallel training with libdlelastic's state. A lost worker is replaced while the others
# keep their processes, and the weights equal those of an undisturbed run. The training shrinks and grows,
# restarts from a snapshot, and also runs without dlaunch.
source "$SOURCE/tests/scenario/common.sh"
need_torch_back_end
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore
export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp" FIRST_WEIGHTS=1
train=("$python" "$SOURCE/tests/scenario/pytorch_state.py")
# same FILE…: the same weights, bit by bit.
same() {
  "$python" - "$@" <<'P' || fail "not the weights of $1"
import pickle, sys, torch
def plain(thing):
    if torch.is_tensor(thing):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items()}
    return [plain(value) for value in thing] if isinstance(thing, (list, tuple)) else thing
first, *others = sys.argv[1:]
weights = plain(torch.load(first))
for other in others:
    assert plain(torch.load(other)) == weights, f"{other} and {first} are not the same"
P
}

mkdir quiet spare again shrunk torchrun alone
run dlaunch --nproc 3 "${train[@]}" --folder quiet --weights quiet.pt
expect_code 0; expect_out 'steps 30 commits 31 again 0'

# A rank dies in the middle of a step. A new process takes its place, or the spare if it is ready.
run dlaunch --nproc 3 --spares 1 --max-restarts 3 "${train[@]}" --folder spare --die 13:1 --weights spare.pt
expect_code 0; expect_out 'steps 30 commits 31 again 1'
expect_err 'rank 1 .*killed by SIGKILL .*(a spare takes its place|starting it again): round [23]'
[ "$(grep -l '^begins at 13 ' spare/steps.* | wc -l)" = 3 ] || fail "not all went on after 13 steps"
[ "$(grep -l '^begins at 0 ' spare/steps.* | wc -l)" = 3 ] || fail "a rank started over"
run dlaunch --nproc 3 --max-restarts 3 "${train[@]}" --folder again --die 13:0 --weights again.pt
expect_code 0; expect_out 'steps 30'
expect_err 'rank 0 .*killed by SIGKILL .*starting it again: round [23]'
grep -q 'all workers' err && fail "others were started again"

# The job shrinks and grows, and repeats no step. The program checks that each sample is in one step.
dlaunch --progress none --nproc 3 "${train[@]}" --folder shrunk --until stop --step-ms 20 >out 2>err </dev/null & job=$!
started+=("$job")
in_size() { [ "$(grep -h '^begins' shrunk/steps.* 2>/dev/null | tail -n 100 | grep -c " size $1\$")" -ge "$2" ]; }
wait_until 300 in_size 3 3 || fail "did not begin"
run_ctl() { dlaunchctl "$@" >ctl.out 2>&1 || fail "dlaunchctl $*: $(cat ctl.out)"; }
run_ctl resize 2
wait_until 300 in_size 2 2 || fail "never 2 ranks: $(dlaunchctl status 2>&1)"
run_ctl resize 3
wait_until 300 in_size 3 6 || fail "never 3 ranks again: $(dlaunchctl status 2>&1)"
touch stop
wait "$job"; code=$?; expect_code 0; expect_out '^\[0\] steps .* again 2$'
grep -Eq 'failed|restart' err && fail "somebody was restarted: $(cat err)"
sed -n 's/^step \([0-9]*\) .*/\1/p' "$(grep -l 'begins at 0 rank 0 ' shrunk/steps.*)" | sort -n | uniq -d | grep -q . &&
  fail "a step was done twice"

# The whole job ends in its second epoch, and a new job continues.
run dlaunch --nproc 3 "${train[@]}" --folder alone --die 14:2 --snapshots snapshots --weights never.pt
expect_code 137
rm -f alone/steps.*
run dlaunch --nproc 3 "${train[@]}" --folder alone --snapshots snapshots --weights resumed.pt
expect_code 0
[ "$(grep -h '^begins' alone/steps.* | sort -u | wc -l)" = 3 ] && grep -qh '^begins at 10 ' alone/steps.* ||
  fail "did not begin from the snapshot: $(grep -h begins alone/steps.*)"

# Under torchrun, and alone.
run "$python" -m torch.distributed.run --nnodes 1 --nproc_per_node 3 --redirects 9:1 --tee 9:1 \
  --monitor_interval 0.1 --rdzv_backend c10d --rdzv_endpoint localhost:0 "${train[@]:1}" --folder torchrun --weights torchrun.pt
expect_code 0
same quiet.pt spare.pt again.pt resumed.pt torchrun.pt
run "${train[@]}" --epochs 1
expect_code 0; expect_out 'steps 10 commits 11 again 0'

# The README's program.
run dlaunch --nproc 2 "$python" "$SOURCE/examples/hello_elastic.py"
expect_code 0; [ "$(grep -c 'learned: the weights are 1 within [0-9]e-0[5-9]$' out)" = 2 ] || fail "not every rank has learned"

# The example, on real images.
if [ -d /usr/share/datasets/fashion-mnist ]; then
  run env PYTHON_EXEC="$python" python3 "$SOURCE/tests/scenario/examples.py" "$SOURCE/examples/train_fashion_mnist.py"
  expect_code 0
fi

# The old names give the same modules, and each warns once, at the import.
cat >names.py <<'P'
import warnings
import dlaunch.torch.elastic
from dlaunch import _core
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import dlring_torch
    from dlring_torch import PeerLost
    import dlelastic_torch
assert dlring_torch is dlaunch.torch and dlelastic_torch is dlaunch.torch.elastic and PeerLost is dlaunch.PeerLost
assert [(one.category, one.filename, one.lineno, str(one.message)) for one in told] == [
    (DeprecationWarning, __file__, 6, "dlring_torch is dlaunch.torch now: import that"),
    (DeprecationWarning, __file__, 8, "dlelastic_torch is dlaunch.torch.elastic now: import that")], told
for wrong in 1, None, _core.init:
    try:
        _core.borrow(wrong, None)
    except ValueError:
        continue
    raise AssertionError(f"{wrong} was taken for a communicator")
P

# An impossible call raises an error of one line. Errors of the program itself pass through.
cat > wrong.py <<'P'
import sys, torch, torch.distributed as dist
from dlaunch.torch import elastic
model = torch.nn.Linear(2, 2)

def told(words, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (ValueError, TypeError, RuntimeError, AttributeError, KeyError) as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"not told: {words}")

told("does not show its whole state in its first step", elastic.TorchState, o=torch.optim.LBFGS(model.parameters()))
told("has holes", elastic.TorchState, t=torch.ones(4, 4)[:, 1])
told("room=", elastic.run(lambda state: None), elastic.TorchState(text="x" * 300000))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
told("begins torch.distributed itself", elastic.run(lambda state: None), elastic.TorchState(x=1))
dist.destroy_process_group()
told("another name", elastic.TorchState, commit=1)
told("after run() has called train()", elastic.TorchState(x=1).commit)
told("4 samples make no batch", elastic.DataLoader, torch.arange(4), 8, drop_last=True)
state = elastic.TorchState(model=model, x=1)
told("change it in place", setattr, state, "model", torch.nn.Linear(2, 2))
told("is not part of the state", setattr, state, "y", 2)
told("has no 'y'", getattr, state, "y")
told("f: it cannot be pickled", elastic.run(lambda state: None), elastic.TorchState(e=1, f=lambda: 1))
told("run(something.train)(state)", elastic.run(lambda self, state: None), model, state)
shorter = elastic.DataLoader(torch.arange(10), 2, seed=1 << 40)
shorter.load_state_dict({"epoch": 3, "position": 12})
assert (shorter.epoch, len(list(shorter)), shorter.epoch) == (4, 5, 5)
state.x += 1
assert state.x == 2 and state.model is model

if hasattr(torch.amp, "GradScaler"):  # for CPUs
    scaler, sgd = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), lr=1.0)
    state = elastic.TorchState(scaler=scaler, sgd=sgd)
    state._check()
    for _ in range(2):
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.unscale_(sgd)
        state._load()  # as if a peer is lost before step()

# Tensors that the program replaces, and values that restore() takes back.
momentum = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
values = torch.nn.Module()
values.register_buffer("mean", torch.ones(2))
state = elastic.TorchState(model=model, momentum=momentum, values=values.mean, statistics=values, x=[1])

@elastic.run
def train(state):
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    momentum.step()
    kept = model.weight.detach().clone()
    model.weight.data = kept.clone()
    state.x = [2]
    state.commit()
    momentum.step()
    momentum.param_groups[0]["lr"] = 5.0
    state.x.append(3)
    model.eval().weight.requires_grad_(False)
    state.restore()
    assert model.training and model.weight.requires_grad and model.weight.grad is None
    assert torch.equal(model.weight, kept) and state.x == [2] and momentum.param_groups[0]["lr"] == 1.0
    assert momentum.state[model.weight]["momentum_buffer"].eq(1).all()
    model.weight.data = torch.ones(2, 2, dtype=torch.float64)
    told("was torch.float32", state.commit)
    model.weight.data = kept
    told("comes before run()", state.snapshots, "snapshots", 1)
    values.mean = None
    told("and is None", state.commit)
    raise KeyError("mine")

told("mine", train, state)
told("call run() once in a process", train, elastic.TorchState(x=1))
P
# Every optimizer of PyTorch continues from a commit as in an undisturbed run.
cat > optimizers.py <<'P'
import sys, torch; from dlaunch.torch import elastic

def optimizers(weights):
    for name, kind in sorted(vars(torch.optim).items()):
        if isinstance(kind, type) and name not in ("Optimizer", "LBFGS", "SparseAdam"):
            yield name, kind(weights(), lr=0.01)
    yield "momentum", torch.optim.SGD(weights(), lr=0.01, momentum=0.9, nesterov=True)
    yield "amsgrad", torch.optim.Adam(weights(), amsgrad=True, weight_decay=0.1)
    yield "centered", torch.optim.RMSprop(weights(), lr=0.01, centered=True, momentum=0.5)
    first, second = weights()
    yield "groups", torch.optim.AdamW([{"params": [first]}, {"params": [second], "lr": 0.1}])

torch.manual_seed(1)
all_of = dict(optimizers(lambda: [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(3, 5))]))
assert len(all_of) > 13, all_of
tensors = {f"{name}_{i}": weight for name, optimizer in all_of.items()
           for i, weight in enumerate(p for group in optimizer.param_groups for p in group["params"])}
schedulers = {f"{name}_schedule": torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100, cycle_momentum=False)
              for name, optimizer in all_of.items() if name != "groups"}
state = elastic.TorchState(**tensors, **all_of, **schedulers)

def steps(seed):
    torch.manual_seed(seed)
    for _ in range(3):
        for weight in tensors.values():
            weight.grad = torch.randn(weight.shape)
        for optimizer in all_of.values():
            optimizer.step()
        for schedule in schedulers.values():
            schedule.step()
    return {name: weight.detach().clone() for name, weight in tensors.items()}

@elastic.run
def train(state):
    begins = steps(0)
    state.restore()  # before any step: the state of optimizers does not exist yet
    for name, weight in steps(0).items():
        assert torch.equal(weight, begins[name]), f"{name} does not begin as it did"
    state.commit()
    goes_on = steps(2)
    state.restore()
    for name, weight in steps(2).items():
        assert torch.equal(weight, goes_on[name]), f"{name} does not go on as it did"

train(state)
print("all", len(all_of))
P
run "$python" optimizers.py
expect_code 0; expect_out '^all 1[4-9]'

# elastic.DataLoader refuses what it does not support with one sentence, when the program makes it.
cat >unsupported.py <<'P'
import torch
from dlaunch.torch import elastic

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(8))

class Unsized:
    def __getitem__(self, index):
        return index

data = list(range(8))
sampler = torch.utils.data.SequentialSampler(data)
for words, dataset, batch, options in (
        ("an IterableDataset is not supported", Stream(), 4, {}),
        ("an IterableDataset is not supported", Stream(), 4, {"shuffle": False}),
        ("needs __len__ and __getitem__, and Unsized lacks", Unsized(), 4, {}),
        ("sampler is not supported: the order", data, 4, {"sampler": sampler}),
        ("batch_sampler is not supported: the batches", data, 4,
         {"batch_sampler": torch.utils.data.BatchSampler(sampler, 2, False)}),
        ("batch_size is not supported: global_batch", data, 4, {"batch_size": 2}),
        ("generator is not supported", data, 4, {"generator": torch.Generator()}),
        ("persistent_workers is not supported", data, 4, {"num_workers": 1, "persistent_workers": True}),
        ("global_batch is the number of samples", data, 4.5, {}),
        ("shuffle is True or False", data, 4, {"shuffle": "yes"})):
    try:
        elastic.DataLoader(dataset, batch, **options)
    except TypeError as error:
        assert words in str(error), f"{error}, and not {words}"
        assert str(error).startswith("elastic.DataLoader: ") and "\n" not in str(error), error
    else:
        raise AssertionError(f"{words}: was accepted")
assert sum(map(len, elastic.DataLoader(data, 4, sampler=None, persistent_workers=False))) == 8
print("all refused")
P
# The worker processes of each rank, and of each pass, have other random numbers. The seed decides the order.
cat >draws.py <<'P'
from unittest import mock

class Draws(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(())

def drawn(rank=0, position=0, **options):
    loader = elastic.DataLoader(Draws(), 2, shuffle=False, num_workers=1, **options)
    loader.load_state_dict({"epoch": 0, "position": position})
    dist = torch.distributed
    with mock.patch.multiple(dist, is_initialized=lambda: True, get_rank=lambda: rank, get_world_size=lambda: 2):
        return {float(x) for batch in loader for x in batch}

first = drawn()
assert len(first) == 4 and drawn() == first, first
for others in drawn(rank=1), drawn(position=4), drawn(seed=1):
    assert others and not first & others, (first, others)
orders = [torch.cat(list(elastic.DataLoader(torch.arange(100), 10, seed=seed))).tolist() for seed in (1, 1, 2)]
assert orders[0] == orders[1] != orders[2], orders
print("all random")
P
# One process runs all four, because each imports PyTorch.
cat names.py wrong.py unsupported.py draws.py >refused.py
run "$python" "$PWD/refused.py"
expect_code 0; expect_out '^all refused$'; expect_out '^all random$'

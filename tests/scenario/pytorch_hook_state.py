"""The state of a hook of DistributedDataParallel. Prints a hash of weights and state.
usage: pytorch_hook_state.py HOOK [lose [two]]: an elastic training; lose: rank 1 dies in the backward of step 7; two:
       rank 2 does, too.
       pytorch_hook_state.py begin HOOK...: trains with each hook, and once more half of the steps, into files of this
       folder.
       pytorch_hook_state.py continue HOOK...: trains with each hook from these files on. Then come wrong calls."""
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import dlaunch.torch
from dlaunch.torch import elastic

STEPS = 12
mortal = {1, 2} if sys.argv[3:] == ["two"] else {1} if sys.argv[2:] == ["lose"] else set()


def new_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Tanh(), torch.nn.Linear(40, 30), torch.nn.Tanh(),
                               torch.nn.Linear(30, 1))


def exchange(how, model, elastic):
    if how == "partial":  # all are in each average
        return dlaunch.torch.Partial(model, may_miss=0, late="carry", elastic=elastic), dlaunch.torch.partial
    if how == "int4":
        return dlaunch.torch.Compression("int4", model, bucket_cap_mb=0.005, elastic=elastic), dlaunch.torch.compressed
    return dlaunch.torch.PowerSGD(model, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1.1,
                                  warm_start=how == "power_sgd", elastic=elastic), dlaunch.torch.compressed


class Training:
    def __init__(self, how, elastic):
        self.how, self.model = how, new_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.hook, self.call = exchange(how, self.model, elastic)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "hook": self.hook}

    def wrapped(self):
        net = DistributedDataParallel(self.model, bucket_cap_mb=0.004)  # several buckets
        net.register_comm_hook(self.hook, self.call)
        return net

    def one_step(self, net, step):
        x = torch.randn(16, 24, generator=torch.Generator().manual_seed(1000 * step + dist.get_rank()))
        self.optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        died = f"died.{dist.get_rank()}"
        if step == 7 and dist.get_rank() in mortal and not os.path.exists(died):
            open(died, "w").close()
            while not all(os.path.exists(f"died.{other}") for other in mortal):  # at once
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        self.optimizer.step()
        if self.how == "partial" and step in (5, 6):  # as if it had been late, before the loss and at the end of the first part
            for name, memory in self.hook.own.items():
                if name != "rank" and dist.get_rank() == 1:
                    memory.copy_(torch.arange(memory.numel()) % 3)

    def steps(self, first, last):
        net = self.wrapped()
        for step in range(first, last):
            self.one_step(net, step)

    def print_state(self):
        weights = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        digest = hashlib.sha256(weights.numpy().tobytes())
        kept = self.hook.state_dict()
        assert sum(float(part.abs().sum()) for name, part in kept.items() if name != "rank") > 0 or self.how == "partial"
        for name in sorted(kept):
            digest.update(kept[name].numpy().tobytes())
        print(f"rank {dist.get_rank()} {self.how} state {digest.hexdigest()}", flush=True)


def refused(says, call, *args, **words):
    try:
        call(*args, **words)
    except (RuntimeError, TypeError, ValueError) as error:
        assert says in str(error), error
        return
    raise AssertionError(f"not refused: {says}")


def check_loss(model):
    """DistributedDataParallel makes another exception of what a hook raises, and so the hook remembers a loss."""
    class Bucket:
        def parameters(self):
            return []

        def index(self):
            raise dlaunch.PeerLost("by rank 1")

    def work():
        raise dlaunch.PeerLost("by rank 1")

    hook = dlaunch.torch.PowerSGD(model)
    future = torch.futures.Future()
    for lose in (lambda: hook._complete([(future, None)], work), lambda: dlaunch.torch.compressed(hook, Bucket()),
                 lambda: hook._in_background(work).result()):
        try:
            lose()
        except dlaunch.PeerLost:
            pass
        hook._worker.submit(lambda: None).result()
        assert hook._lost
        hook._settle()
        assert not hook._lost


def check_refusals():
    model = new_model()
    one = dlaunch.torch.Compression("int8")
    refused("needs the module", one.state_dict)
    refused("needs the module", dlaunch.torch.Compression, "int8", elastic=True)
    refused("and must be one of none, bf16, int8", dlaunch.torch.Compression, "int9", model, elastic=True)
    refused("at least 1", dlaunch.torch.PowerSGD, model, matrix_approximation_rank=0)
    refused("'drop' or 'carry'", dlaunch.torch.Partial, model, may_miss=1, late="never")
    two = dlaunch.torch.PowerSGD(model)
    refused("other options", two.load_state_dict, dlaunch.torch.PowerSGD(model, matrix_approximation_rank=2).state_dict())
    refused("with elastic=True", elastic.TorchState, model=model, hook=two)
    kept = dlaunch.torch.Compression("int8", model, elastic=True)
    refused("use snapshots()", elastic.TorchState(model=model, hook=kept).checkpoints, "never", 1)
    # What one rank has kept must not count twice.
    a, b = (dlaunch.torch.Compression("int8", model) for _ in range(2))
    a.own["residual"].fill_(1)
    for rank, sum_of in ((dist.get_rank(), 1), (dist.get_rank() + 1, 0)):
        a.own["rank"].fill_(rank + 1)
        b.load_state_dict(a.state_dict())
        assert float(b.own["residual"].mean()) == sum_of
    # What a hook keeps is float32 whatever the default type is.
    torch.set_default_dtype(torch.float64)
    for hook in (dlaunch.torch.Compression("int8", model), dlaunch.torch.Partial(model, may_miss=1, late="carry"),
                 dlaunch.torch.PowerSGD(model, min_compression_rate=1.1)):
        kept = {**hook.own, **hook.common}
        assert {tensor.dtype for name, tensor in kept.items() if name not in ("rank", "iter")} == {torch.float32}
    check_loss(model)


def begin(how):
    training = Training(how, False)
    training.steps(0, STEPS)
    training.print_state()
    half = Training(how, False)
    half.steps(0, STEPS // 2)
    torch.save({name: part.state_dict() for name, part in half.parts.items()}, f"{how}.{dist.get_rank()}")


def go_on(how):
    training = Training(how, False)
    for name, state in torch.load(f"{how}.{dist.get_rank()}").items():
        training.parts[name].load_state_dict(state)
    training.steps(STEPS // 2, STEPS)
    training.print_state()


if sys.argv[1] in ("begin", "continue"):
    dist.init_process_group("dlring")
    for how in sys.argv[2:]:
        begin(how) if sys.argv[1] == "begin" else go_on(how)
    if sys.argv[1] == "continue":
        check_refusals()
    dist.barrier()
    dist.destroy_process_group()
    sys.exit()

training = Training(sys.argv[1], True)
state = elastic.TorchState(**training.parts, step=0, shard_replicas=2 if len(mortal) == 2 else None)


@elastic.run
def train(state):
    net = training.wrapped()
    while state.step < STEPS:
        training.one_step(net, state.step)
        state.step += 1
        state.commit()
    training.print_state()


train(state)

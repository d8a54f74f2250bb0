"""Local training with PyTorch and an outer optimizer; prints a hash of the weights for each kind of training.
usage: outer_torch.py begin|continue KIND...: "begin" trains for all steps, and once more for the first half of them, and
leaves files in the current folder; "continue" trains from these files on."""
import hashlib
import sys

import torch
import torch.distributed as dist

import dlaunch
import dlaunch.torch

STEPS = 14


class Training:
    def __init__(self, kind):
        self.kind = kind
        # The group trains by its own communicator, beside its calls.
        self.comm = None if kind == "group" else dlaunch.init()
        self.rank = dist.get_rank() if self.comm is None else self.comm.rank
        torch.manual_seed(self.rank)  # DiLoCo copies rank 0's
        self.model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 1))
        if kind == "bfloat16":
            self.model = self.model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        if kind == "local":
            self.outer = dlaunch.torch.LocalSGD(self.model, inner_steps=3, communicator=self.comm, codec="bf16")
        else:
            self.outer = dlaunch.torch.DiLoCo(self.model, inner_steps=6, communicator=self.comm, codec="int4", fragments=2,
                                              delay=2, mixing=0.5)
        try:
            dlaunch.torch.DiLoCo([torch.zeros(1, dtype=torch.float64)], communicator=self.comm)
            raise AssertionError("float64 was taken")
        except TypeError as error:
            assert "must have float32, bfloat16 or float16" in str(error)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "outer": self.outer}
        assert self.same_on_all_ranks(), "the ranks begin with different parameters"

    def file(self, step):
        return f"{self.kind}-{step}-{self.rank}.pt"

    def weights(self):
        return torch.cat([parameter.detach().float().flatten() for parameter in self.model.parameters()])

    def same_on_all_ranks(self):
        own = self.weights()
        if self.comm is not None:
            all_of = self.comm.all_gather(own)
        else:
            all_of = [torch.empty_like(own) for _ in range(dist.get_world_size())]
            dist.all_gather(all_of, own)
        return all(torch.equal(one, all_of[0]) for one in all_of)

    def load(self, step):
        for name, state in torch.load(self.file(step)).items():
            self.parts[name].load_state_dict(state)

    def save(self, step):
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, self.file(step))

    def steps(self, begin, end):
        for step in range(begin + 1, end + 1):
            random = torch.Generator().manual_seed(1000 * step + self.rank)
            x = torch.randn(16, 20, generator=random).to(self.model[0].weight.dtype)
            self.optimizer.zero_grad()
            (self.model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            self.optimizer.step()
            if self.kind == "group":
                assert not self.same_on_all_ranks()
            self.outer.step()
            assert self.outer.steps == step
        shared = self.kind == "local" and end % 3 == 0
        assert self.same_on_all_ranks() == shared, "who shares parameters in which step"

    def finish(self):
        """Returns a hash of the weights before and after the last average."""
        own = self.weights()
        self.outer.finish()
        assert self.same_on_all_ranks(), "the ranks end with different parameters"
        return hashlib.sha256(own.numpy().tobytes() + self.weights().numpy().tobytes()).hexdigest()


def begin(kind):
    whole = Training(kind)
    whole.steps(0, STEPS)
    whole.save(STEPS)
    print(f"{kind}: weights {whole.finish()}")
    half = Training(kind)
    half.steps(0, STEPS // 2)
    half.save(STEPS // 2)
    half.finish()
    if kind == "local":
        longer = Training(kind)
        longer.steps(0, 15)
        longer.finish()


def go_on(kind):
    training = Training(kind)
    training.load(STEPS // 2)
    training.steps(STEPS // 2, STEPS)
    print(f"{kind}: weights {training.finish()}")


for kind in sys.argv[2:]:
    if kind == "group":
        dist.init_process_group("dlring")
    begin(kind) if sys.argv[1] == "begin" else go_on(kind)

"""An elastic training as Horovod's documentation writes it. usage: horovod_elastic.py FOLDER [VICTIM ...]

The victims, ranks, die one after the other in the middle of a step. Rank 0 writes the final weights to the folder."""

import os
import signal
import sys

import horovod.torch as hvd
import torch

folder, victims = sys.argv[1], [int(word) for word in sys.argv[2:]]
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
data = torch.randn(96, 4, generator=torch.Generator().manual_seed(1))
dataset = torch.utils.data.TensorDataset(data, data.sum(1, keepdim=True))
sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True)
loader = torch.utils.data.DataLoader(dataset, batch_size=24 // hvd.size(), sampler=sampler)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, seen=[])
resets = []
state.register_reset_callbacks([lambda: resets.append(hvd.size())])


def die_if_due():
    dead = len([name for name in os.listdir(folder) if name.startswith("dead.")])
    if dead < len(victims) and hvd.rank() == victims[dead] and len(state.seen) > 4 + 4 * dead:
        open(os.path.join(folder, f"dead.{dead}"), "x").close()
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, 4):
        state.sampler.set_epoch(state.epoch) if state.sampler.epoch != state.epoch else None
        for index, (x, y) in enumerate(loader):
            die_if_due()
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            die_if_due()
            optimizer.step()
            state.sampler.record_batch(index, len(x))
            state.seen += [len(x) * hvd.size()]
            state.commit()
    return "done"


assert train(state) == "done"
assert sum(state.seen) == 4 * len(dataset), state.seen
for other in hvd.allgather_object([p.tolist() for p in model.parameters()]):
    assert other == [p.tolist() for p in model.parameters()], "the ranks have other weights"
if hvd.rank() == 0:
    torch.save(model.state_dict(), os.path.join(folder, "weights.pt"))
print(f"rank {hvd.rank()} of {hvd.size()} ended after resets {resets}", flush=True)

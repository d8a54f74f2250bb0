"""The smallest training that continues when workers die.

    $ dlaunch --nproc 2 --spares 1 --max-restarts 100 hello_elastic.py
    [0] learned: the weights are 1 within …
    [1] learned: the weights are 1 within …

Kill a worker while it runs, or let dlaunch do so: --chaos kill=5s.
"""

import torch
from torch.nn.parallel import DistributedDataParallel
from dlaunch.torch import elastic

x = torch.randn(4096, 10, generator=torch.Generator().manual_seed(1))
dataset = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = elastic.DataLoader(dataset, global_batch=256, seed=1)
state = elastic.TorchState(model=model, optimizer=optimizer, loader=loader)


@elastic.run  # dlaunch calls it again in each round, on old and new workers
def train(state):
    net = DistributedDataParallel(model)
    while loader.epoch < 10:
        for inputs, sums in loader:  # continues at the last commit, also within an epoch
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(inputs), sums).backward()
            optimizer.step()
            state.commit()


train(state)
print(f"learned: the weights are 1 within {(model.weight - 1).abs().max().item():.0e}")

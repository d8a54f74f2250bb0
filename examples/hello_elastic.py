# The README's program for a training that goes on when workers die.
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

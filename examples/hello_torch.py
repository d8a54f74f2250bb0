# The README's program for PyTorch.
import torch
import torch.distributed as dist
import dlaunch.torch

dist.init_process_group("dlring")  # ranks and peers from the launcher
x = torch.tensor([float(dist.get_rank())])
dist.all_reduce(x)  # 0 + 1 + … on every rank
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item():g}")
dist.destroy_process_group()

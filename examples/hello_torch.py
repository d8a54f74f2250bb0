"""The smallest program with PyTorch: torch.distributed, with libdlring as its back end.

    $ dlaunch --nproc 4 hello_torch.py
    [0] rank 0 of 4: 6
    [1] rank 1 of 4: 6
    [2] rank 2 of 4: 6
    [3] rank 3 of 4: 6
"""

import torch
import torch.distributed as dist
import dlaunch.torch

dist.init_process_group("dlring")  # ranks and peers from the launcher
x = torch.tensor([float(dist.get_rank())])
dist.all_reduce(x)  # 0 + 1 + … on every rank
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item():g}")
dist.destroy_process_group()

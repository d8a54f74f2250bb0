"""examples/train_fashion_mnist_fsdp.py at a pace that lets a test change the number of ranks in its middle.
usage: pytorch_fsdp.py EXAMPLE FILE [OPTION...]: ten steps into a round it takes 1 s a step, until FILE is there."""
import os
import runpy
import sys
import time

import torch.distributed as dist

from dlaunch.torch import elastic

example, go_on = sys.argv[1:3]


class Paced(elastic.DataLoader):
    def __iter__(self):
        for step, batch in enumerate(super().__iter__()):
            yield batch
            if dist.get_rank() == 0:
                print(f"step {step} of {dist.get_world_size()} ranks", flush=True)
            if step >= 10 and not os.path.exists(go_on):
                time.sleep(1)


elastic.DataLoader = Paced
sys.argv = [example, *sys.argv[3:]]
sys.path.insert(0, os.path.dirname(example))
runpy.run_path(example, run_name="__main__")

"""An elastic training in PyTorch. usage: pytorch_state.py [OPTION...]

--epochs N          passes over the data (3); --until FILE: as many as it takes until that is there
--die STEP:RANK     that rank kills itself in that step, once: FOLDER/died is then there
--folder FOLDER     for what is left to others: lines of a step each in FOLDER/steps.PID
--snapshots FOLDER  each tenth commit goes there
--step-ms N         a pause in each step
--weights FILE      rank 0 writes the model and the optimizer at the end
With DEVICE=cuda the model is on the GPU of the local rank; ranks may share one.
"""

import argparse
import glob
import os
import random
import signal
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlaunch.torch import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--until", default="")
parser.add_argument("--die", default="")
parser.add_argument("--folder", default=".")
parser.add_argument("--snapshots", default="")
parser.add_argument("--step-ms", type=int, default=0)
parser.add_argument("--weights", default="")
options = parser.parse_args()
device = os.environ.get("DEVICE", "cpu")
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 330

    def __getitem__(self, index):
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return x, x.sum().tanh(), index


torch.manual_seed(os.getpid())  # what begins differently is rank 0's
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(),
                            torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
if os.environ.get("FIRST_WEIGHTS"):
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
loader = elastic.DataLoader(Data(), global_batch=33, seed=1, num_workers=1)
state = elastic.TorchState(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader,
                           seen=torch.zeros(330, dtype=torch.int64, device=device), steps=0, last_rank=0,
                           drawn=0)
if options.snapshots:
    state.snapshots(options.snapshots, every=10, keep=2)
rounds = [0]
state.register_reset_callbacks([lambda: rounds.append(dist.get_world_size())])
log = open(f"{options.folder}/steps.{os.getpid()}", "a", buffering=1)


def die_if_due():
    if f"{state.steps}:{dist.get_rank()}" != options.die:
        return
    try:
        os.close(os.open(f"{options.folder}/died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    while options.snapshots and not glob.glob(f"{options.snapshots}/commit-*-10.*.dlstate"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def more():
    return not os.path.exists(options.until) if options.until else loader.epoch < options.epochs


kept = []


@elastic.run
def train(state):
    try:
        rounds_steps(state)
    except Exception as error:
        kept.append(error)  # and all that it knows: the broken round's DistributedDataParallel
        raise


def rounds_steps(state):
    net = DistributedDataParallel(model)
    log.write(f"begins at {state.steps} rank {dist.get_rank()} size {dist.get_world_size()}\n")
    going = True
    while going:
        epoch = loader.epoch
        for x, y, indices in loader:
            x, y, indices = x.to(device), y.to(device), indices.to(device)
            loss = (net(x)[:, 0] - y).square().mean()
            die_if_due()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()  # here: what a broken step has left must not count
            scheduler.step()
            state.steps += 1
            share = torch.zeros(330, dtype=torch.int64, device=device)
            share[indices] = 1
            dist.all_reduce(share)
            state.seen += share
            # The ranks look at different moments, and agree.
            asked = torch.tensor(float(more()), device=device)
            dist.all_reduce(asked, dist.ReduceOp.MIN)
            state.last_rank = dist.get_rank()
            state.drawn = hash((state.drawn, random.random(), numpy.random.random()))
            state.commit()
            assert state.last_rank == 0, "not what rank 0 had committed"
            log.write(f"step {state.steps} epoch {epoch} samples {int(share.sum())}\n")
            going = bool(asked)
            if not going:
                break
            time.sleep(options.step_ms / 1000)
        going = going and (bool(options.until) or more())  # of --until they have agreed


train(state)
# Each sample of an epoch was in one committed step.
assert int(state.seen.sum()) == 330 * loader.epoch + loader.position, (state.seen, loader.epoch, loader.position)
assert int(state.seen.max()) - int(state.seen.min()) <= 1, state.seen
if dist.get_rank() == 0:
    print("steps", state.steps, "commits", state.commits, "again", len(rounds) - 1, flush=True)
    if options.weights:
        torch.save((model.state_dict(), optimizer.state_dict(), scheduler.state_dict(), state.drawn),
                   options.weights)

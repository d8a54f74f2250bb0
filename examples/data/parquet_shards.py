"""Data in Parquet files, one shard for each rank, in another order in each epoch, exactly once, also when a rank dies.

    $ python3 parquet_shards.py shards --make
    4 files, 12 row groups, 300 rows
    $ dlaunch --nproc 3 --min-nproc 2 --max-restarts 0 parquet_shards.py shards --lose
    [0] round 1: shard 0 of 3, epoch 0 from row group 0
    [0] round …: shard 0 of 2, epoch 1 from row group 6
    [0] each of 300 rows was in each of 2 epochs once: yes
    dlaunch: … killed by SIGKILL …

A Parquet file has its rows in row groups. A program can read one row group without the rest of the file, but no less.
So the ranks share the row groups like cards. Readers of Petastorm have the same arguments: cur_shard is the rank, and
shard_count the number of ranks.

The state of the training has the epoch, and the number of row groups that all ranks have taken in it. Here rank 2 dies
in the middle of epoch 1, and dlaunch continues with two ranks (--min-nproc 2). They share the rest of the epoch again:
each row is in exactly one committed step. The program needs pyarrow.
"""

import os
import pathlib
import signal
import sys

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

import dlaunch
from dlaunch import elastic

FILES, GROUPS, ROWS, EPOCHS, SEED = 4, 3, 25, 2, 1


def make(folder):
    folder.mkdir()
    for number in range(FILES):
        ids = np.arange(GROUPS * ROWS) + number * GROUPS * ROWS
        table = pyarrow.table({"id": ids, "x": ids / 100.0})
        parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=ROWS)
    print(f"{FILES} files, {FILES * GROUPS} row groups, {FILES * GROUPS * ROWS} rows")


class Reader:
    """This shard's row groups of an epoch. All shards shuffle with the same seed, so they agree without a message."""

    def __init__(self, folder, cur_shard, shard_count, seed):
        self.files = [parquet.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
        self.groups = [(file, i) for file in self.files for i in range(file.num_row_groups)]
        self.rows = sum(file.metadata.num_rows for file in self.files)
        self.cur_shard, self.shard_count, self.seed = cur_shard, shard_count, seed

    def batches(self, epoch, position):
        """Yields (the columns of this shard's next row group, the position after this step). If the last step has fewer
        row groups than there are shards, some shards get columns without rows."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.groups))
        for first in range(position, len(order), self.shard_count):
            mine = order[first + self.cur_shard:][:1] if first + self.cur_shard < len(order) else []
            yield self.read(mine, epoch), min(first + self.shard_count, len(order))

    def read(self, numbers, epoch):
        """The rows of a row group are shuffled, too."""
        if len(numbers) == 0:
            return {"id": np.empty(0, int), "x": np.empty(0)}
        file, group = self.groups[numbers[0]]
        table = file.read_row_group(group)
        rows = np.random.default_rng([self.seed, epoch, numbers[0]]).permutation(table.num_rows)
        return {name: table[name].to_numpy()[rows] for name in table.column_names}


@elastic.run
def train(state):
    reader = Reader(folder, cur_shard=comm.rank, shard_count=comm.size, seed=SEED)
    if comm.rank == 0:
        print(f"round {comm.round}: shard 0 of {comm.size}, epoch {state.epoch} from row group {state.position}")
    while state.epoch < EPOCHS:
        for columns, position in reader.batches(state.epoch, state.position):
            # A training would compute a gradient here, and all_reduce that.
            counts = np.bincount(columns["id"], minlength=reader.rows)
            if "--lose" in sys.argv and comm.rank == 2 and (state.epoch, state.position) == (1, 6):
                os.kill(os.getpid(), signal.SIGKILL)
            comm.all_reduce(counts, out=counts)
            seen[state.epoch] += counts
            state.position = position
            state.commit()
        state.epoch, state.position = state.epoch + 1, 0


folder = pathlib.Path(sys.argv[1])
if "--make" in sys.argv:
    make(folder)
    sys.exit()
comm = dlaunch.init(elastic=True)
seen = np.zeros((EPOCHS, FILES * GROUPS * ROWS), int)  # the number of committed steps with each row
train(elastic.State(comm, seen=seen, epoch=0, position=0))
if comm.rank == 0:
    once = "yes" if (seen == 1).all() else "no"
    print(f"each of {seen.shape[1]} rows was in each of {EPOCHS} epochs once: {once}")

"""Groups: communicators of some of the ranks.

    $ dlaunch --nproc 4 groups.py
    [0] row 0: rank 0 of 2, sum 1
    [0] column 0: rank 0 of 2, sum 2
    [0] ends: rank 1 of 2, sum 3
    [1] row 0: rank 1 of 2, sum 1
    [1] column 1: rank 0 of 2, sum 4
    [2] row 1: rank 0 of 2, sum 5
    [2] column 0: rank 1 of 2, sum 2
    [3] row 1: rank 1 of 2, sum 5
    [3] column 1: rank 1 of 2, sum 4
    [3] ends: rank 0 of 2, sum 3

The four ranks form a table of two rows and two columns. Programs that combine two kinds of parallelism do so: one
kind along the rows, the other along the columns.

        0  1
        2  3
"""

import numpy as np

import dlaunch


def sum_in(name, group):
    total = group.all_reduce(np.array([comm.rank]))  # only the ranks of the group take part
    print(f"{name}: rank {group.rank} of {group.size}, sum {total[0]}")


comm = dlaunch.init()
row, column = divmod(comm.rank, 2)

# All ranks call split. Ranks that give the same color are in one group. The group numbers its ranks from 0.
sum_in(f"row {row}", comm.split(color=row))
sum_in(f"column {column}", comm.split(color=column))

# Only the ranks of the group call group. They all know the list, and its order is their order in the group.
if comm.rank in (3, 0):
    sum_in("ends", comm.group([3, 0]))

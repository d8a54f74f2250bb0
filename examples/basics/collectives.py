"""A tour of the collectives: calls that all ranks make together.

    $ dlaunch --nproc 3 collectives.py
    [1] each rank begins with    [2, 20] on rank 1, [1, 10] on rank 0, [3, 30] on rank 2
    [1] broadcast from rank 0    [1, 10]
    [1] reduce to rank 1         [6, 60]
    [1] all_reduce               [6, 60]
    [1] all_reduce with max      [3, 30]
    [1] gather on rank 1         [[1, 10], [2, 20], [3, 30]]
    [1] all_gather               [[1, 10], [2, 20], [3, 30]]
    [1] all_gather_v             [0, 1, 1, 2, 2, 2]
    [1] scatter from rank 0      [101]
    [1] reduce_scatter           [60]
    [1] all_to_all               [1, 11, 21]
    [1] all_reduce of a list     [6, 60] and [3]
    [1] barrier                  every rank was here

Only rank 1 prints. All ranks must make the same calls in the same order: a rank that skips one makes the others wait.
"""

import numpy as np

import dlaunch

comm = dlaunch.init()
rank, size = comm.rank, comm.size


def show(call, value):
    if rank == 1:
        print(f"{call:24}", value)


x = np.array([rank + 1, 10 * (rank + 1)])
show("each rank begins with", f"{x.tolist()} on rank 1, [1, 10] on rank 0, [3, 30] on rank 2")

# Copies one rank's array to all ranks. broadcast is the one call that changes its argument.
copy = x.copy()
comm.broadcast(copy, root=0)
show("broadcast from rank 0", copy.tolist())

# The sum over all ranks, element by element: on one rank, or on all of them.
total = comm.reduce(x, root=1)  # None on the other ranks
show("reduce to rank 1", total.tolist() if rank == 1 else None)
show("all_reduce", comm.all_reduce(x).tolist())
show("all_reduce with max", comm.all_reduce(x, "max").tolist())

# Every rank's array, one beneath the other.
rows = comm.gather(x, root=1)  # None on the other ranks
show("gather on rank 1", rows.tolist() if rank == 1 else None)
show("all_gather", comm.all_gather(x).tolist())
# Arrays of different lengths: all ranks know how many elements each of them gives.
mine = np.full(rank + 1, rank)
show("all_gather_v", comm.all_gather_v(mine, counts=[1, 2, 3]).tolist())

# Rank r gets part r of the root's array.
parts = np.array([100, 101, 102]) if rank == 0 else None
show("scatter from rank 0", comm.scatter(parts, root=0, out=np.empty(1, int)).tolist())
# Rank r gets part r of the sum of all arrays. This and an all_gather are together an all_reduce.
show("reduce_scatter", comm.reduce_scatter(np.array([10, 20, 30])).tolist())
# Part p of this rank's array goes to rank p.
show("all_to_all", comm.all_to_all(10 * rank + np.arange(3)).tolist())

# Several arrays in one call, such as the gradients of a model.
first, second = comm.all_reduce_list([x, np.array([1])])
show("all_reduce of a list", f"{first.tolist()} and {second.tolist()}")
comm.barrier()
show("barrier", "every rank was here")

"""Three ways in which the ranks find each other: by the environment, at an address, and in a shared folder.

By the environment: the launcher has set everything. This is the usual way.

    $ dlaunch --nproc 2 init_methods.py env://
    [0] env: rank 0 of 2, together 3
    [1] env: rank 1 of 2, together 3

At an address: rank 0 listens there and the others connect. Here it is the address that dlaunch has reserved.

    $ dlaunch --nproc 2 init_methods.py 'tcp://${master_addr}:${master_port}'
    [0] tcp: rank 0 of 2, together 3
    [1] tcp: rank 1 of 2, together 3

In a folder that all ranks share, a new one for each job. No launcher is needed: here a shell starts the ranks.

    $ for r in 0 1; do RANK=$r WORLD_SIZE=2 python3 init_methods.py file://$PWD/meeting >out.$r & done; wait; cat out.*
    file: rank 0 of 2, together 3
    file: rank 1 of 2, together 3

Rank and size may also be arguments: dlaunch.init("tcp://host1:29500", rank=0, size=2).
"""

import sys

import numpy as np

import dlaunch

url = sys.argv[1]
comm = dlaunch.init(url)
together = comm.all_reduce(np.array([comm.rank + 1]))
print(f"{url.partition(':')[0]}: rank {comm.rank} of {comm.size}, together {together[0]}")

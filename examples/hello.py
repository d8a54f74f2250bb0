"""The smallest program: every rank learns the sum of all ranks.

    $ dlaunch --nproc 4 hello.py
    [0] rank 0 of 4: 6
    [1] rank 1 of 4: 6
    [2] rank 2 of 4: 6
    [3] rank 3 of 4: 6
"""

import numpy as np
import dlaunch

comm = dlaunch.init()  # ranks and peers from the launcher
x = np.array([float(comm.rank)])
comm.all_reduce(x, out=x)  # 0 + 1 + … on every rank
print(f"rank {comm.rank} of {comm.size}: {x[0]:g}")

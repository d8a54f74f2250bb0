# The README's first program.
import numpy as np
import dlaunch

comm = dlaunch.init()  # ranks and peers from the launcher
x = np.array([float(comm.rank)])
comm.all_reduce(x, out=x)  # 0 + 1 + … on every rank
print(f"rank {comm.rank} of {comm.size}: {x[0]:g}")

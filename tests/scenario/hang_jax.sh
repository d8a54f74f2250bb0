# JAX on CPUs: the rank that does not come to a collective is named, with its stack.
source "$SOURCE/tests/scenario/common.sh"
python=${JAX_PYTHON:-/usr/bin/python3}
"$python" -c 'import jax' 2>/dev/null || skip 'no JAX is here: JAX_PYTHON names a Python that has it'
export JAX_PLATFORMS=cpu; PATH=$(dirname "$python"):$PATH

cat >gather.py <<'P'
import os, time
import jax
jax.distributed.initialize(os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"],
                           int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
import jax.numpy as jnp
from jax.experimental import multihost_utils
for step in range(8):
    if step == 3 and jax.process_index() == 1:
        time.sleep(1000)
    multihost_utils.process_allgather(jnp.array([step]))
P
run dlaunch --nproc 2 --hang-warning 3s --hang-timeout 6s --timeout 100s "$python" gather.py
expect_code 137; expect_err 'rank 1 .* failed first: it hung'
expect_err 'no rank has written output or used CPU time, for'; expect_err 'stacks of rank 1'

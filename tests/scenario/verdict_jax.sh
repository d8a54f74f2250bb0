# Ranks of JAX give up waiting at a barrier: the report names the rank that does not come. When the first of them ends,
# JAX ends all others.
source "$SOURCE/tests/scenario/verdict.sh"
python=${JAX_PYTHON:-/usr/bin/python3}
"$python" -c 'import jax' 2>/dev/null || skip "no JAX is here: JAX_PYTHON names a Python that has it"
export JAX_PLATFORMS=cpu
cat >stuck.py <<'P'
import os
import jax
from jax._src import distributed
from stuck_rank import get_stuck

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", size, rank, shutdown_timeout_seconds=4)
client = distributed.global_state.client
client.wait_at_barrier("start", 100000)
if rank == int(os.environ["CULPRIT"]):
    get_stuck(os.environ["KIND"])
client.wait_at_barrier("step", 3000)
P
for kind in ${JAX_KINDS:-$kinds}; do found "$kind" 1 134 "$python" stuck.py; done
expect_err 'give up waiting for .*rank 1'
random_culprits 0 134 "$python" stuck.py

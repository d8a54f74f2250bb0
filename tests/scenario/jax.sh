# JAX: jax.distributed.initialize() needs no arguments, the report names a killed rank, and dlaunch.jax reduces
# pytrees, within jit and outside.
source "$SOURCE/tests/scenario/common.sh"
python=${JAX_PYTHON:-/usr/bin/python3}
"$python" -c 'import jax' 2>/dev/null || skip "no JAX is here: JAX_PYTHON names a Python that has it"
need_package
install_beside jax
export JAX_PLATFORMS=cpu

cat >ranks.py <<'P'
import os, signal, sys
import jax
jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils
rank, size = jax.process_index(), jax.process_count()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), (rank, size)
everyone = multihost_utils.process_allgather(jnp.array([rank]))
assert everyone.ravel().tolist() == list(range(size)), everyone
print("met", rank, size, flush=True)
if sys.argv[1:]:
    if rank == int(sys.argv[1]) and os.environ["DLAUNCH_ROUND"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    multihost_utils.process_allgather(jnp.array([rank]))
print("over", rank, flush=True)
P
for ranks in 2 4; do
  run dlaunch --nproc $ranks "$python" ranks.py; expect_code 0
  [ "$(grep -c "met [0-9] $ranks$" out)" = $ranks ] || fail "not $ranks ranks"
done
run dlaunch --nproc 2 "$python" ranks.py 1
expect_code 137; expect_err 'rank 1 \(.*failed first: killed by SIGKILL'
run dlaunch --nproc 2 --max-restarts 1 "$python" ranks.py 1
expect_code 0; [ "$(grep -c 'over' out)" = 2 ] || fail "not both ranks came to the end"

cat >reduce.py <<'P'
import os, signal, sys
import jax, jax.numpy as jnp, numpy as np
import dlaunch, dlaunch.jax as dj
if sys.argv[1:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's SIGTERM may come before the error
comm = dj.communicator()
rank, size = comm.rank, comm.size
total = sum(range(size))
tree = {"a": jnp.full((2, 3), rank + 1.0), "b": [jnp.arange(3) * rank, jnp.full((), 2, jnp.bfloat16)],
        "empty": jnp.zeros((0, 4)), "number": np.float32(rank)}
for jit in (lambda f: f), jax.jit:
    s = jit(dj.psum)(tree)
    assert (s["a"] == total + size).all() and s["a"].shape == (2, 3) and s["a"].dtype == jnp.float32, s
    assert (s["b"][0] == jnp.arange(3) * total).all() and s["b"][1] == 2 * size and s["b"][1].dtype == jnp.bfloat16, s
    assert s["empty"].shape == (0, 4) and s["number"] == total, s
    assert (jit(dj.pmean)(tree)["a"] == (total + size) / size).all()
    assert jit(dj.pmax)(tree)["number"] == size - 1 and jit(dj.pmin)(tree)["number"] == 0
    assert jit(dj.broadcast)(tree)["number"] == 0 and jit(lambda t: dj.broadcast(t, root=1))(tree)["number"] == 1
    g = jit(dj.all_gather)(tree)
    assert g["a"].shape == (size, 2, 3) and (g["number"] == jnp.arange(size)).all() and g["empty"].shape == (size, 0, 4)

# The average of the gradients of a batch's parts is the gradient of the batch.
xs, ys = np.random.default_rng(1).normal(size=(2, 4 * size, 5)).astype(np.float32)
loss = lambda w, x, y: ((x * w - y) ** 2).mean()
mine = slice(4 * rank, 4 * rank + 4)
@jax.jit
def step(w, x, y):
    return w - 0.1 * dj.pmean(jax.grad(loss)(w, x, y))
w = alone = jnp.ones(5)
for _ in range(5):
    w = step(w, xs[mine], ys[mine])
    alone = alone - 0.1 * jax.grad(loss)(alone, xs, ys)
np.testing.assert_allclose(w, alone, rtol=1e-5)
assert (dj.all_gather(w) == w).all(), "the ranks differ"

# A call outside of jit comes after those within, even on a rank whose computation before them takes longer.
@jax.jit
def late_sum(x):
    slow = jax.lax.fori_loop(0, 100 if rank == 0 else 0, lambda i, m: jnp.tanh(m @ m), jnp.ones((400, 400)) * x)
    return dj.psum(jnp.where(slow[0, 0] == 7, 0.0, x))
within = late_sum(jnp.float32(1))
assert dj.psum(jnp.float32(2)) == 2 * size and within == size, within
print("right", rank, flush=True)
if sys.argv[1:]:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dj.psum(w)
    except dlaunch.PeerLost as e:
        print("told", e, flush=True)
    try:
        jax.block_until_ready(step(w, xs[mine], ys[mine]))
    except jax.errors.JaxRuntimeError as e:
        print("told in jit", "PeerLost" in str(e), flush=True)
    os._exit(3)
P
for ranks in 2 4; do
  run dlaunch --nproc $ranks "$python" reduce.py; expect_code 0
  [ "$(grep -c right out)" = $ranks ] || fail "not every rank was right"
done
run dlaunch --nproc 2 "$python" reduce.py lose; expect_code 137
expect_out '^\[0\] told .*rank 1'; expect_out '^\[0\] told in jit True'

# With virtual shards a training has the same weights, bit by bit, at any number of workers, while a job changes its size,
# and after a worker's death; whatever the transport.
source "$SOURCE/tests/scenario/common.sh"
need_numpy
export PATH="$BUILD/cli/ctl:$PATH"
export TMPDIR="$tmp"  # hides other jobs of this user
cat >train.py <<'PY'
import os, sys, time
import numpy as np
import dlaunch
from dlaunch import elastic

comm = dlaunch.init(elastic=True)
steps, shards, kind = int(sys.argv[1]), 8, np.float32
data = np.random.default_rng(1).normal(size=(960, 500)).astype(kind)
w, moment = np.ones(500, kind), np.zeros(500, kind)
sampler = elastic.ElasticSampler(len(data), 24, seed=3, shards=shards)
state = elastic.State(comm, w=w, moment=moment, sampler=sampler, step=0)

@elastic.run
def train(state):
    print(f"round of {comm.size} begins", file=sys.stderr, flush=True)
    total = np.empty_like(w)
    while state.step < steps:
        for _ in sampler:
            gradients = [(data[part] * (data[part] @ w)[:, None]).sum(0) for part in sampler.shard_samples()]
            if "LOSE" in os.environ and comm.round == 1 and comm.rank == 1 and state.step == 50:
                os.kill(os.getpid(), 9)
            comm.all_reduce_shards(gradients, shards, "avg", out=total)
            moment[:] = kind(0.9) * moment + total
            w[:] -= kind(1e-3) * moment
            state.step += 1
            state.commit()
            # The driver changes the size there: each size computes some steps.
            if comm.rank == 0 and state.step % 20 == 0:
                open(f"at.{state.step}", "w").close()
            while os.path.exists("pauses") and state.step % 20 == 0 and not comm.round_over and \
                    not os.path.exists(f"go.{state.step}"):
                time.sleep(0.01)
            if state.step == steps:
                break

train(state)
if comm.rank == 0:
    np.concatenate([w, moment]).tofile(sys.argv[2])
PY

run dlaunch --nproc 4 "$python" train.py 100 four.bin; expect_code 0
for size in 1 2 3 5 8; do
  for transport in auto tcp; do
    run dlaunch --nproc $size --transport $transport "$python" train.py 100 other.bin; expect_code 0
    cmp four.bin other.bin || fail "other weights with $size workers by $transport"
  done
done

# A worker dies, and its place is taken.
LOSE=1 run dlaunch --nproc 3 --max-restarts 3 "$python" train.py 100 died.bin; expect_code 0
expect_err 'rank 1 .* killed by SIGKILL'
cmp four.bin died.bin || fail "other weights after a death"

# 4 workers, then 3, 2 and 4 again, after 20 steps each.
rm -f at.*
touch pauses
dlaunch --nproc 4 --min-nproc 1 "$python" train.py 100 resized.bin >out 2>err </dev/null & job=$!
started+=("$job")
begun() { [ "$(grep -c "round of $1 begins" err)" -ge "$2" ]; }
step=20
for size in 3 2 4; do
  wait_until test -e at.$step || fail "never at step $step: $(cat err)"
  dlaunchctl resize $size >ctl.out 2>&1 || fail "resize $size: $(cat ctl.out)"
  touch go.$step; step=$((step + 20))
  wait_until begun $size $([ $size = 4 ] && echo 8 || echo $size) || fail "never $size workers: $(cat err)"
done
touch go.80 go.100
wait "$job"; code=$?; expect_code 0
cmp four.bin resized.bin || fail "other weights after 4, 3, 2 and 4 workers"

# An FSDP2 training on Fashion-MNIST with 4 ranks. Its weights do not change if workers are killed. It shrinks to 2 ranks
# and grows again with the same losses. PyTorch alone reads its checkpoints, and it reads those of PyTorch alone. It
# needs a newer PyTorch than Debian's: TORCH_PYTHON names one, and the build is for it.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'from torch.distributed.fsdp import fully_shard' 2>/dev/null ||
  skip "this PyTorch is older than FSDP2: TORCH_PYTHON names a Python with a newer one"
need_torch_built
[ -d /usr/share/datasets/fashion-mnist ] || skip "Fashion-MNIST is not installed"
export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore TMPDIR="$tmp" PATH="$BUILD/cli/ctl:$PATH"
with=(env PYTHONPATH="$BUILD/python")
example="$SOURCE/examples/train_fashion_mnist_fsdp.py"
few=(--samples 10240 --epochs 2)

run "${with[@]}" dlaunch --nproc 4 "$python" "$example" "${few[@]}" --checkpoints quiet --losses quiet.txt
expect_code 0; expect_out '^\[0\] epoch 2  loss 0\.'
# On a slow machine a worker takes longer to start and to make a commit, so workers are killed less often.
kill_every=$((ms / 4 > 12000 ? ms / 4 : 12000))ms
paced=("$python" "$SOURCE/tests/scenario/pytorch_fsdp.py" "$example")
"${with[@]}" dlaunch --nproc 4 --max-restarts 100 --chaos kill=$kill_every "${paced[@]}" killed "${few[@]}" \
  --checkpoints chaos --losses chaos.txt >out 2>err </dev/null & job=$!
started+=("$job")
replaced() { grep -q 'chaos sent it SIGKILL' err && grep -Eq 'round [2-9]: 4 workers' err; }
wait_until 300 replaced || fail "nobody was killed and replaced"
touch killed
wait "$job"; code=$?; expect_code 0
cmp quiet.txt chaos.txt || fail "killed workers changed the losses"
run "$python" "$SOURCE/tests/scenario/pytorch_fsdp_alone.py" quiet/end chaos/end "$SOURCE/examples"
expect_code 0; expect_out '^the same, with accuracy 0\.[78]'

# Checkpoints that PyTorch alone has written, HSDP, random numbers.
mkdir folders
run "$python" "$SOURCE/tests/scenario/pytorch_fsdp_folders.py" folders; expect_code 0
run "${with[@]}" dlaunch --nproc 4 "$python" "$SOURCE/tests/scenario/pytorch_fsdp_folders.py" folders
expect_code 0; [ "$(grep -c 'folders are right$' out)" = 4 ] || fail "not every rank was right"

# 4, 2, 4 ranks. The order of sums differs, so the losses differ by rounding.
"${with[@]}" dlaunch --nproc 4 "${paced[@]}" go-on "${few[@]}" --losses resized.txt >out 2>err </dev/null & job=$!
started+=("$job")
steps_of() { [ "$(grep -c "of $1 ranks$" out)" -ge "$2" ]; }
wait_until 150 steps_of 4 10 || fail "did not begin"
dlaunchctl resize 2 >ctl.out 2>&1 || fail "dlaunchctl resize 2: $(cat ctl.out)"
wait_until 150 steps_of 2 10 || fail "never 2 ranks"
before=$(grep -c 'of 4 ranks$' out)
dlaunchctl resize 4 >ctl.out 2>&1 || fail "dlaunchctl resize 4: $(cat ctl.out)"
wait_until 150 steps_of 4 "$((before + 10))" || fail "never 4 ranks again"
touch go-on
wait "$job"; code=$?; expect_code 0
"$python" - <<'P' || fail "another number of ranks left the curve of losses"
quiet, resized = ([float(line) for line in open(name)] for name in ("quiet.txt", "resized.txt"))
furthest = max(abs(a - b) for a, b in zip(quiet, resized))
print(f"{len(quiet)} losses, at most {furthest:.1e} apart")
assert len(quiet) == len(resized) == 80 and furthest < 1e-3, (len(resized), furthest)
P

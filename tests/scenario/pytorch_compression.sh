# DistributedDataParallel with gradients in few bits: all ranks have equal weights, with the loss of exact gradients. A
# lost worker ends the step of the others.
source "$SOURCE/tests/scenario/common.sh"
need_torch_back_end
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
here=$SOURCE/tests/scenario

weights() { sed -nE "s/.* $1: loss .* weights ([0-9a-f]+)$/\1/p" out | sort -u; }
loss() { sed -nE "s/^\[0\] $1: loss ([0-9.]+) .*/\1/p" out; }
# All codecs in the same processes, because the import of PyTorch takes longer than a training.
for backend_and_codecs in 'dlring exact bf16 int8 fp8 int4 power_sgd' 'gloo int4 power_sgd'; do
  read -r backend codecs <<<"$backend_and_codecs"
  run dlaunch --nproc 2 "$python" "$here/pytorch_compression.py" $backend $codecs; expect_code 0
  [ $backend = gloo ] || { exact=$(weights exact); exact_loss=$(loss exact); }
  for codec in ${codecs#exact}; do
    how="$codec on $backend"
    [ "$(weights $codec | wc -l)" = 1 ] || fail "$how: the ranks print different weights, or none"
    [ "$(weights $codec)" != "$exact" ] || fail "$how: the gradients are exact"
    awk -v is="$(loss $codec)" -v exact="$exact_loss" 'BEGIN { exit !(is > 0.9 * exact && is < 1.1 * exact) }' ||
      fail "$how: the loss is $(loss $codec), and exact gradients give $exact_loss"
  done
done
for codec in int4 power_sgd; do
  run dlaunch --nproc 2 --grace 20s "$python" "$here/pytorch_compression.py" dlring $codec die; expect_code 137
  expect_err '^\[0\] backward ends with .*rank 1 \(pid [0-9]+ on [^ )]+\)'
done

# PowerSGD computes what PyTorch's own hook does, which keeps its state by bucket, and so cannot go on in other processes.
run dlaunch --nproc 3 "$python" "$here/pytorch_power_sgd.py"; expect_code 0
[ "$(grep -c "as PyTorch's hook$" out)" = 3 ] || fail "not every rank has ended: $(cat out err)"

# The state of each hook: a training in other processes, and one that loses a rank, end with the weights of an undisturbed
# one, bit for bit. The hooks that lose nobody share their processes.
states() { sed -nE "s/^\[([0-9])\] .* $1 state ([0-9a-f]+)$/\1 \2/p" out | sort; }
declare -A undisturbed
hooks='int4 power_sgd power_sgd_cold partial'
run dlaunch --nproc 3 "$python" "$here/pytorch_hook_state.py" begin $hooks; expect_code 0
for how in $hooks; do
  undisturbed[$how]=$(states $how)
  [ "$(wc -l <<<"${undisturbed[$how]}")" = 3 ] || fail "$how: not every rank has ended: $(cat out err)"
done
run dlaunch --nproc 3 "$python" "$here/pytorch_hook_state.py" continue $hooks; expect_code 0
for how in $hooks; do
  [ "$(states $how)" = "${undisturbed[$how]}" ] || fail "$how: other processes come to another state: $(cat out err)"
done
# Over sockets a communicator of the hook's own may see the loss before the main one.
for how in 'int4 shm' 'power_sgd tcp' 'power_sgd_cold shm' 'partial tcp'; do
  read -r how transport <<<"$how"
  rm -f died.*
  run dlaunch --nproc 3 --transport $transport --max-restarts 1 "$python" "$here/pytorch_hook_state.py" $how lose; expect_code 0
  [ -f died.1 ] || fail "$how: no worker has died"
  [ "$(states $how)" = "${undisturbed[$how]}" ] || fail "$how: a worker that died has changed the state: $(cat out err)"
done
# Two neighbours at once.
rm -f died.*
run dlaunch --nproc 4 "$python" "$here/pytorch_hook_state.py" partial; expect_code 0
alike=$(states partial)
[ "$(wc -l <<<"$alike")" = 4 ] || fail "not every rank of four has ended: $(cat out err)"
run dlaunch --nproc 4 --max-restarts 2 "$python" "$here/pytorch_hook_state.py" partial lose two; expect_code 0
[ "$(states partial)" = "$alike" ] || fail "two workers that died have changed the state: $(cat out err)"

# The package dlaunch for Python: results equal NumPy's, wrong calls raise errors, no argument causes a crash, and
# trainings with NumPy survive the loss of a worker, bit for bit.
source "$SOURCE/tests/scenario/common.sh"
need_numpy
here=$SOURCE/tests/scenario

run dlaunch --nproc 4 "$python" -X faulthandler "$here/python_package.py" 2
expect_code 137; expect_err 'rank 2 .* failed first: killed by SIGKILL'
for part in reductions own_operations own_errors own_functions_end moves whatever_has_memory halfway mistakes \
            batches groups_and_keys threads_and_children; do
  expect_out "^\[0\] $part is right$"
done
if "$python" -c 'import ml_dtypes' 2>/dev/null; then
  expect_out '^\[0\] small_floats is right$'
else
  expect_out '^\[0\] small_floats skipped: '
  echo "ml_dtypes is not installed: 8-bit floats are not tried"
fi
[ "$(grep -c 'got PeerLost$' out)" = 3 ] || fail "not every rank has learned of the lost one"

# A program and its child may end while its function runs in the background. Python runs no function after that.
cat >slow.py <<'P'
import threading, time
begun = threading.Event()

def slow(a, b):
    begun.set()
    for _ in range(50):
        time.sleep(0.001)  # takes Python's lock each time
    return a + b
P
cat >ends.py <<'P'
import atexit, os, sys
import numpy as np, slow

def late():
    try:
        comm.all_reduce(np.ones(1), dlaunch.Op(np.add))
    except RuntimeError as error:
        print("refused:", error)

atexit.register(late)  # runs after what dlaunch registers
import dlaunch
comm = dlaunch.init()
request = comm.iall_reduce(np.ones(1 << 20), dlaunch.Op(slow.slow))
assert slow.begun.wait(60)
child = os.fork()
if child == 0:
    atexit.unregister(late)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print("ends", flush=True)
P
run timeout 150 dlaunch --nproc 2 "$python" -X faulthandler ends.py
expect_code 0; [ "$(grep -c ' ends$' out)" = 2 ] || fail "not every rank has come to its end"
[ "$(grep -c 'refused: all_reduce: Python ends' out)" = 2 ] || fail "a call may use an Op after the end"

run "$python" -X faulthandler -W ignore "$here/python_fuzz.py" "${FUZZ_SEED:-1}" "${FUZZ_SEEDS:-100}"
expect_code 0; expect_out '^only results and exceptions$'

weights() { sed -n 's/.*weights \([0-9a-f]*\) after .*/\1/p' out | sort -u; }
run dlaunch --nproc 3 "$python" "$here/python_elastic.py"; expect_code 0
undisturbed=$(weights)
[ "$(wc -w <<<"$undisturbed")" = 1 ] || fail "the ranks differ"
run dlaunch --nproc 3 --max-restarts 1 "$python" "$here/python_elastic.py" snapshots lose; expect_code 0
expect_out 'in round [2-9]$'
[ "$(weights)" = "$undisturbed" ] || fail "a lost worker has changed the weights"
# A new job continues from the last snapshot, where no step is left.
run dlaunch --nproc 2 "$python" "$here/python_elastic.py" snapshots; expect_code 0
[ "$(weights)" = "$undisturbed" ] || fail "the snapshot has other weights"
run "$python" "$here/python_elastic.py"; expect_code 0
[ "$(weights)" = "$undisturbed" ] || fail "one rank without a launcher comes to other weights"

# A process that has left an elastic job may join it again.
cat >twice.py <<'P'
import numpy as np, dlaunch
rounds = []
for _ in range(3):
    comm = dlaunch.init(elastic=True)
    rounds.append(comm.round)
    assert comm.all_reduce(np.ones(1))[0] == comm.size == 2
    comm.finalize()
print("rounds", *rounds)
P
run dlaunch --nproc 2 "$python" twice.py; expect_code 0; expect_out '^\[1\] rounds 1 2 3$'

run dlaunch --nproc 4 --min-nproc 3 --max-restarts 0 "$python" "$here/python_own.py"; expect_code 0
[ "$(grep -c '3 ranks have all bytes$' out)" = 3 ] || fail "not every rank went on with its own bytes"
[ "$(grep -c 'refused:' out)" = 12 ] || fail "set_own took what it cannot take"

export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp"
dlaunch --nproc 3 "$python" "$here/python_planned.py" >out 2>err </dev/null & job=$!
started+=("$job")
all_begin() { [ "$(grep -c 'begins in round 1$' out)" = 3 ]; }
job_over() { ! kill -0 "$job" 2>/dev/null; }
wait_until all_begin || fail "a job of 3 ranks did not begin"
dlaunchctl resize 2 >ctl.out 2>&1 || fail "dlaunchctl resize: $(cat ctl.out)"
wait_until job_over || fail "a receive under way keeps a planned round from beginning"
wait "$job"; code=$?; expect_code 0; expect_out '^\[0\] ended: '

run dlaunch --nproc 2 "$python" -m dlaunch.bench --rounds 20 -b 8 -e 4K -f 8
expect_code 0; expect_out '^\[0\] +8 +[0-9.]+ +[0-9.]+ '
# The import of the package loads neither NumPy nor PyTorch.
run "$python" -c 'import sys, dlaunch; assert not {"numpy", "torch", "pickle"} & set(sys.modules), sys.modules'
expect_code 0
if "$python" -c 'import torch' 2>/dev/null; then
  run dlaunch --nproc 2 "$python" -c '
import dlaunch, torch
comm = dlaunch.init()
x = torch.full((3,), 1.5 + comm.rank)
assert torch.equal(comm.all_reduce(x), torch.full((3,), 4.0))
assert torch.equal(comm.all_gather(x.bfloat16())[1], x.bfloat16() * 0 + 2.5)
for wrong in (x.requires_grad_(), torch.ones(2, 2).t(), torch.ones(2).to_sparse(), torch.ones(2, device="meta")):
    try:
        comm.all_reduce(wrong)
    except Exception as error:
        print("refused:", str(error).splitlines()[0])
'
  expect_code 0; [ "$(grep -c refused: out)" = 8 ] || fail "wrong tensors were taken"
fi

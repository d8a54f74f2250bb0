# Local training with an outer optimizer, in Python: a training that loses a worker, or goes on in other processes, ends
# with the weights of an undisturbed one, bit for bit.
source "$SOURCE/tests/scenario/common.sh"
need_numpy
here=$SOURCE/tests/scenario

weights() { sed -nE 's/^\[([0-9])\] .*weights ([0-9a-f]+).*/\1 \2/p' out | sort; }
run dlaunch --nproc 3 "$python" "$here/outer_numpy.py"; expect_code 0
undisturbed=$(weights)
[ "$(wc -l <<<"$undisturbed")" = 3 ] || fail "not every rank has ended"
run dlaunch --nproc 3 --transport tcp "$python" "$here/outer_numpy.py"; expect_code 0
[ "$(weights)" = "$undisturbed" ] || fail "sockets give other weights"
run dlaunch --nproc 3 --max-restarts 1 "$python" "$here/outer_numpy.py" lose; expect_code 0
expect_out 'dies with an average in the background$'
expect_out 'in round [2-9]$'
! grep -q AssertionError err || fail "an assertion of the program has failed"
[ "$(weights)" = "$undisturbed" ] || fail "a lost worker has changed the weights"

run dlaunch --nproc 2 "$python" -c '
import numpy as np, dlaunch
comm = dlaunch.init()
w = np.ones(3, "float32")
def refused(call, *args, **words):
    try:
        call(*args, **words)
    except Exception as error:
        print("refused:", type(error).__name__, error)
refused(dlaunch.Outer, comm, [w], inner_steps=0)
refused(dlaunch.Outer, comm, [w], codec="int3")
refused(dlaunch.Outer, comm, [np.ones(3)])
refused(dlaunch.Outer, None, [w])
refused(dlaunch.Outer(comm, [w]).load_state_dict, dlaunch.Outer(comm, [w], codec="fp8").state_dict())
refused(dlaunch.Outer(comm, [w]).load_state_dict, dlaunch.Outer(comm, [w], inner_steps=400).state_dict())
refused(dlaunch.Outer, comm, [w, w])
late = dlaunch.Outer(comm, [w], inner_steps=2, delay=1)
late.step(), late.step()
comm.barrier()
assert late.in_flight  # and done: the end of a rank is none of its loss
pair = comm.split(0)
alone = dlaunch.Outer(pair, [w], inner_steps=2, delay=1)
alone.step()
if comm.rank == 0:
    alone.step()
    pair.finalize()  # waits for nobody
comm.barrier()
if comm.rank == 1:
    refused(lambda: (alone.step(), alone.step()))
    refused(alone.state_dict)
    alone.restored()
    alone.state_dict()
memory = late.shared
comm.finalize()
refused(late.step)
del late
assert memory.sum() > 0
'
expect_code 0; [ "$(grep -c refused: out)" = 18 ] || fail "something wrong was taken"
expect_out 'refused: InvalidError dl_outer_new: inner_steps is less than 1$'
expect_out "refused: ValueError Outer: codec is 'int3', and must be 'none', 'bf16', 'int8', 'fp8', 'int4' or 'topk'\$"
expect_out 'refused: ValueError Outer: the state belongs to another inner_steps, fragments, '
expect_out 'refused: InvalidError dl_outer_new: two tensors share memory'
expect_out '^\[1\] refused: PeerLost .*rank 0.*has been restored$'
expect_out 'refused: TypeError Outer: tensor 0 has type float64, and must have float32$'

has_torch "$python" || { echo "PyTorch is not installed: it is not tried"; exit 0; }
torch_built ||
  { echo "dlaunch.torch was not built: it is not tried"; exit 0; }
export PYTHONWARNINGS=ignore
# All kinds in the same processes, because the import of PyTorch takes longer than a training.
kinds='diloco local bfloat16 group'
run dlaunch --nproc 2 "$python" "$here/outer_torch.py" begin $kinds; expect_code 0
cp out undisturbed
run dlaunch --nproc 2 "$python" "$here/outer_torch.py" continue $kinds; expect_code 0
of_kind() { sed -nE "s/^\[([0-9])\] $1: weights ([0-9a-f]+)$/\1 \2/p" "$2" | sort; }
for kind in $kinds; do
  [ "$(of_kind $kind undisturbed | wc -l)" = 2 ] || fail "$kind: not every rank has ended"
  [ "$(of_kind $kind out)" = "$(of_kind $kind undisturbed)" ] || fail "$kind: other processes come to other weights"
done

run dlaunch --nproc 3 "$python" "$here/outer_torch_elastic.py"; expect_code 0
undisturbed=$(weights)
[ "$(wc -l <<<"$undisturbed")" = 3 ] || fail "not every rank has ended"
for how in lose early; do
  rm -f died
  with=; [ $how = early ] || with=without_numpy
  $with run dlaunch --nproc 3 --max-restarts 1 "$python" "$here/outer_torch_elastic.py" $how; expect_code 0
  [ -f died ] || fail "no worker has died"
  [ $how = early ] || expect_out 'dies with an average in the background$'
  ! grep -q AssertionError err || fail "an assertion of the program has failed"
  [ "$(weights)" = "$undisturbed" ] || fail "a worker that died ($how) has changed the weights"
done

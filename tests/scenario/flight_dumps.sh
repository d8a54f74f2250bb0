# --run-dir has the flight records of libdlring as dumps of PyTorch's Flight Recorder: Python reads them, and PyTorch's own
# analyser names the rank that lacks a collective.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/rounds_worker
python=${TORCH_PYTHON:-$(command -v python3)}
[ -n "$python" ] || skip 'Python is not installed'

run dlaunch --nproc 3 --hang-timeout 3s --run-dir runs/hang "$worker" --steps 1000 --hang 2
expect_code 137
seq=$(grep -o 'rank 2 has not entered all_reduce #[0-9]*' err | head -n 1 | grep -o '[0-9]*$')
[ -n "$seq" ] || fail 'dlaunch itself does not name the rank'
cat >look.py <<'E'
import pickle, sys
seq = int(sys.argv[1])
for rank in range(3):
    with open(f"runs/hang/flight_dumps/rank_{rank}", "rb") as file:
        dump = pickle.load(file)
    assert dump["pg_config"]["0"] == {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}, dump["pg_config"]
    states = {entry["collective_seq_id"]: entry["state"] for entry in dump["entries"]}
    assert states[seq - 1] == "completed", (rank, states)
    assert states.get(seq) == (None if rank == 2 else "started"), (rank, states)
E
run "$python" look.py "$seq"; expect_code 0

# A run that ends well leaves no dumps of the one before.
run dlaunch --nproc 3 --run-dir runs/hang "$worker" --steps 10
expect_code 0; [ ! -e runs/hang/flight_dumps ] || fail 'old dumps were left'

"$python" -c 'import torch.distributed.flight_recorder.fr_trace' 2>/dev/null ||
  skip "PyTorch's analyser: TORCH_PYTHON names a PyTorch that has torchfrtrace"
run dlaunch --nproc 3 --hang-timeout 3s --run-dir runs/again "$worker" --steps 1000 --hang 1
expect_code 137
seq=$(grep -o 'rank 1 has not entered all_reduce #[0-9]*' err | head -n 1 | grep -o '[0-9]*$')
"$python" -m torch.distributed.flight_recorder.fr_trace runs/again/flight_dumps >analysis 2>&1 ||
  { cat analysis; fail 'the analyser does not read the dumps'; }
grep -q "Not all ranks joining collective, sequence number: $seq\$" analysis &&
  grep -q 'missing ranks: {1}' analysis || { cat analysis; fail 'the analyser does not name rank 1'; }

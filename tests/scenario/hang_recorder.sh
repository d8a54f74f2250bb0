# PyTorch's Flight Recorder: at a hang dlaunch asks it where each rank stands, and the rank that lacks a collective is
# replaced although all stacks are equal. A thread stands in for ProcessGroupNCCL's, which needs GPUs: it waits for the
# request in the pipe and writes the dump. With a PyTorch whose Gloo has the recorder the dump is real.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-$(command -v python3)}
[ -n "$python" ] || skip 'Python is not installed'

cat >recorder.py <<'P'
import os, pickle, threading

def serve(dump):
    """Answers each request in the pipe with dump(), as ProcessGroupNCCL does."""
    pipe = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + os.environ["RANK"] + ".pipe"
    os.mkfifo(pipe)
    requests = os.open(pipe, os.O_RDWR)

    def answer():
        while os.read(requests, 1):
            with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"], "wb") as file:
                file.write(dump())
    threading.Thread(target=answer, daemon=True).start()

def recorded(seq, state):
    entry = {"process_group": ("0", "default_pg"), "collective_seq_id": seq, "profiling_name": "nccl:all_reduce",
             "state": state, "is_p2p": False, "retired": state == "completed"}
    return pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [entry]}, 2)
P
cat >sleepers.py <<'P'
import os, time, recorder
late = os.environ["RANK"] == "2"
recorder.serve(lambda: recorder.recorded(16 if late else 17, "completed" if late else "started"))
time.sleep(1000)
P
run dlaunch --nproc 3 --hang-timeout 6s --timeout 100s "$python" sleepers.py
expect_code 137; expect_err 'rank 2 .* failed first: it hung'
expect_err 'rank 2 has not entered all_reduce #17, where rank 0-1 are waiting'
[ "$(grep -c 'it hung' err)" = 1 ] || fail 'others were called hung, too'

# A program that answers with code gets none of it run, and a user's own choice of files stands.
cat >attacker.py <<'P'
import os, time, recorder
recorder.serve(lambda: b"cos\nsystem\n(S'touch " + os.getcwd().encode() + b"/owned'\ntR.")
time.sleep(1000)
P
mkdir own
run env TORCH_FR_DUMP_TEMP_FILE="$PWD/own/dump." dlaunch --nproc 2 --hang-timeout 5s --timeout 100s "$python" attacker.py
expect_code 137; [ ! -e owned ] || fail 'a pickle ran'
[ -e own/dump.0 ] || fail "the user's own file was not used"

"$python" -c 'from torch._C._distributed_c10d import _dump_fr_trace' 2>/dev/null ||
  skip 'real dumps: TORCH_PYTHON names a PyTorch whose Gloo has the Flight Recorder'
cat >train.py <<'P'
import time
import torch, torch.distributed as dist
import recorder
dist.init_process_group("gloo")
recorder.serve(lambda: torch._C._distributed_c10d._dump_fr_trace(True, False, False))
x = torch.ones(10)
for step in range(5):
    if step == 3 and dist.get_rank() == 1:
        time.sleep(1000)
    dist.all_reduce(x)
P
run dlaunch --nproc 3 --hang-timeout 8s --timeout 140s "$python" train.py
expect_code 137; expect_err 'rank 1 .* failed first: it hung'
expect_err 'rank 1 has not entered all_reduce #4, where rank 0,2 are waiting'

# PyTorch with Gloo: a rank that sleeps for good is replaced, and its stack tells it from those that wait. A rank that
# computes while the others wait ends nothing.
source "$SOURCE/tests/scenario/common.sh"
need_torch

cat >train.py <<'P'
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(10)
for step in range(6):
    if step == 3 and dist.get_rank() == 1 and os.environ["DLAUNCH_ROUND"] == "1":
        if sys.argv[1] == "sleep":
            time.sleep(1000)
        print("computes", flush=True)
        while True:
            pass
    dist.all_reduce(x)
print("over", flush=True)
P
run dlaunch --nproc 3 --hang-timeout 6s --timeout 400s --max-restarts 1 "$python" train.py sleep
expect_code 0; [ "$(grep -c over out)" = 3 ] || fail 'not all ranks came to the end'
expect_err 'no rank has written output or used CPU time, for'
expect_err 'rank 1 .* failed first: it hung, .*; restarting all workers: round 2'

dlaunch --nproc 2 --hang-timeout 4s "$python" train.py compute >out 2>err </dev/null & job=$!; started+=($job)
began() { grep -q computes out || ! kill -0 $job 2>/dev/null; }
wait_until 300 began; grep -q computes out || fail 'no rank computes'
sleep 9  # longer than it may hang
kill -TERM $job; wait $job; code=$?
expect_code 143; ! grep 'it hung' err || fail 'a job was ended in which a rank computes'

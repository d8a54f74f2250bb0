# Horovod's API over two hosts: every collective, local ranks and hosts, and an elastic training that continues when its
# rank 0, and then another rank, are killed.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
need_torch
need_package
export PYTHONPATH="$BUILD/python${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
here=$SOURCE/tests/scenario
hosts_up 2

touch stalled
start_job "2 1" --nnodes 2 --nproc 2 -x HOSTS=2 "$python" -X faulthandler "$here/horovod_calls.py"
wait_job 300 0
[ "$(cat out.1 out.2 | grep -c ' is right$')" = 15 ] || job_fails "not every part is right"

mkdir quiet killed
start_job "2 1" --nnodes 2 --nproc 1 --horovod "$python" "$here/horovod_elastic.py" "$PWD/quiet"
wait_job 300 0
start_job "2 1" --nnodes 2 --nproc 1 --max-restarts 3 --horovod "$python" "$here/horovod_elastic.py" "$PWD/killed" 0 1
wait_job 300 0
"$python" -c 'import torch
quiet, killed = torch.load("quiet/weights.pt"), torch.load("killed/weights.pt")
assert all(torch.equal(quiet[key], killed[key]) for key in quiet), (quiet, killed)' || job_fails "other weights"

# The examples with PyTorch: each prints the output that its header shows.
source "$SOURCE/tests/scenario/common.sh" || exit 1
source "$SOURCE/tests/scenario/installed_examples.sh"
export PYTHONWARNINGS=ignore
need_torch_back_end
examples_up "$python"
run dlaunch --nproc 2 "$python" training/bounded_staleness.py --servers 2; expect_code 1
expect_err 'servers is 2, and must be at least 1 and below the number of ranks, which is 2'
images='training/diloco.py training/bounded_staleness.py'
[ -d /usr/share/datasets/fashion-mnist ] || images=
run_examples hello_torch.py hello_elastic.py training/buckets.py parallel/rpc_rnn.py $images

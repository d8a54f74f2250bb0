# DistributedDataParallel with averages that do not wait for a slow rank: after each step all ranks have equal parameters,
# and each gradient is in one average or dropped. A lost worker ends the step of the others.
source "$SOURCE/tests/scenario/common.sh"
need_torch_back_end
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
partial=("$python" "$SOURCE/tests/scenario/pytorch_partial.py")

run dlaunch --nproc 4 "${partial[@]}" carry:60:5 drop:60:5 behind; expect_code 0
expect_out '^\[3\] carry: [0-9]+ given, [1-9][0-9]* skipped, at most [4-9] in an average, [1-9][0-9]* carried'
expect_out '^\[3\] drop: [0-9]+ given, [1-9][0-9]* skipped, at most [34] in an average, 0 carried'
expect_out '^\[3\] behind: '
run dlaunch --nproc 4 --transport tcp "${partial[@]}" carry:40:5; expect_code 0
expect_out '^\[3\] carry: .* skipped'
run dlaunch --nproc 4 --grace 20s "${partial[@]}" carry:40:5 die; expect_code 137
expect_err '^\[[012]\] ends with .*rank 3 \(pid [0-9]+ on [^ )]+\)'

# PyTorch's own tests of a back end pass on libdlring, also with TORCH_DISTRIBUTED_DEBUG=DETAIL. This runs the
# tests of the installed PyTorch that tests/pytorch/pinned.txt names. script/test-pytorch runs all tests.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
"$python" -c 'import torch.testing._internal.distributed, numpy' 2>/dev/null || skip "PyTorch's tests are not installed"
need_torch_built

suite() {
  run "$SOURCE/script/test-pytorch" --python "$python" --module "$BUILD/python" --backends dlring "$@"
  expect_code 0; expect_out 'dlring +[0-9]+ +0 +[0-9]+$'
}
suite --list "$SOURCE/tests/pytorch/pinned.txt"
passed=$(awk '$1 == "dlring" && NF == 4 { print $2 }' out)
[ "$passed" -ge 100 ] || fail "$passed tests passed, and at least 100 should"
suite --debug DETAIL --match '^test_(all_gather_object|broadcast|ddp_sync|reduce_sum|send_recv)'

# A test that only PyTorch's own back ends can pass does not count, and the output has the reason. An older PyTorch
# asks the back end, so there the test passes.
run "$SOURCE/script/test-pytorch" --python "$python" --module "$BUILD/python" --backends dlring --match '^test_ddp_logging_data_cpu$'
expect_code 0; expect_out "^dlring: cannot pass test_ddp_logging_data_cpu: .*'custom'|dlring +1 +0 +0$"

# The output names a failed test, and the exit code is 1.
run "$SOURCE/script/test-pytorch" --python "$python" --module "$BUILD/python" --backends dlring --match '^test_barrier$' --limit 0.01
expect_code 1; expect_out 'dlring: HANG test_barrier: '; expect_out 'dlring +0 +1 +0$'
run "$SOURCE/script/test-pytorch" --python /bin/false
expect_code 1; expect_err 'cannot import torch'

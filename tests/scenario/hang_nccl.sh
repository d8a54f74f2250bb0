# Programs that call NCCL without libdlring: dlaunch gives NCCL its profiler plug-in, and at a hang the plug-in's records
# name the rank that lacks a collective or calls another one, though all stacks are equal. A program stands in for NCCL.
source "$SOURCE/tests/scenario/common.sh"
program=$BUILD/tests/support/nccl_program
job() { rm -f shared; run dlaunch --nproc 4 "$@"; }
hang() { job --hang-timeout 5s --timeout 100s "$@"; expect_code 137; expect_err "rank 2 .* failed first: it hung"; }

# Every version of plug-ins that NCCL may want.
for version in 3 4 5; do
  hang "$program" $version 2:lacks 20
  expect_out "version $version mask 6"
  expect_err 'rank 2 has not enqueued collective #3, all_reduce \(count 1000, float\), on NCCL communicator world, where rank 0-1,3 are waiting'
  expect_err 'it last enqueued all_reduce #2 \(count 1000, float\) on NCCL communicator world'
  [ "$(grep -c 'it hung' err)" = 1 ] || fail 'others were called hung, too'
done

# The others wait as CUDA does, with all of their CPU time.
SPIN=waits hang "$program" 5 2:lacks 20
expect_err 'rank 2 has not enqueued collective #3'

# The others compute, after they have enqueued their collectives: the job does not hang.
SPIN=computes job --hang-timeout 3s --timeout 8s "$program" 5 2:lacks 20
expect_code 75; ! grep 'it hung' err || fail 'dlaunch ended a job that computes'

# Another call in its place; who waits by the stacks, or by the counts, is the same everywhere.
hang "$program" 5 2:differs 20
expect_err 'collective #3 on NCCL communicator world is not the same: rank 0-1,3 have called all_reduce .*, rank 2 has called broadcast'

# With events of kernels, a GPU that does not come to it. The report has the last operations of the rank.
hang --nccl-record kernels --error-file report.json "$program" 4 2:held 20
expect_out 'version 4 mask 70'
expect_err 'rank 2 has enqueued collective #3, .* on NCCL communicator world, but earlier work still holds the GPU; rank 0-1,3 are waiting'
python3 - <<'P' || fail "the report lacks the operations"
import json
last = json.load(open("report.json"))["root_cause"]["last_operations"]
assert last[-1]["state"] == "enqueued" and last[-1]["operation"].startswith("all_reduce #20 (count 1000, float)"), last
P

# A program that goes well, and what a running one does.
job --nccl-record kernels "$program" 5 9:none 50; expect_code 0
rm -f shared
dlaunch --nproc 4 --job-id nccl --timeout 100s "$program" 5 2:lacks 20 >out 2>err & started+=($!)
shows() { "$BUILD/cli/ctl/dlaunchctl" --job nccl status 2>&1 | grep -q "$1"; }
wait_until shows 'all_reduce #2 (count 1000, float) on NCCL communicator world, enqueued' || fail 'dlaunchctl status'
"$BUILD/cli/ctl/dlaunchctl" --job nccl stop >/dev/null || fail 'dlaunchctl stop'
wait "${started[-1]}"

# The user's own plug-in stands, and the record can be left out.
job --nccl-record off "$program" 5 9:none 5; expect_code 0; expect_out 'version 0 mask 0'
job --env NCCL_PROFILER_PLUGIN=none "$program" 5 9:none 5; expect_code 0; expect_out 'version 0 mask 0'
run dlaunch --dry-run --nccl-record kernels true; expect_out 'NCCL record: kernels'
run dlaunch --check-build; expect_out '\[X\] --nccl-record'

# NCCL itself, without a GPU: its own function that loads a plug-in, on a communicator of zeros.
[ -n "${NCCL_LIBRARY:-}" ] || skip 'NCCL itself: NCCL_LIBRARY names a libnccl.so.2 with symbols, 2.26 or newer'
cat >load.py <<'P'
import ctypes, subprocess, sys
path = sys.argv[1]
lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
symbols = {line.split()[2]: int(line.split()[0], 16) for line in lines if len(line.split()) == 3}
library = ctypes.CDLL(path)
base = ctypes.cast(library.pncclGetVersion, ctypes.c_void_p).value - symbols["pncclGetVersion"]
comm = ctypes.create_string_buffer(4 << 20)
for name in "_Z22ncclProfilerPluginInitP8ncclComm", "_Z26ncclProfilerPluginFinalizeP8ncclComm":
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + symbols[name])
    print("result", call(ctypes.addressof(comm)), "mask", ctypes.c_int.from_address(base + symbols["ncclProfilerEventMask"]).value, flush=True)
P
run dlaunch --nproc 1 --env NCCL_DEBUG=INFO python3 load.py "$NCCL_LIBRARY"; expect_code 0
expect_out 'PROFILER/Plugin: Loaded dlaunch'; expect_out 'result 0 mask 6'

# Libraries that only some jobs need: all other jobs run without them, and a job that needs one gets an error
# with its name.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH"
export TMPDIR="$tmp"  # hides other jobs of this user
mkdir none
for name in libssl.so.3 libcrypto.so.3 libhwloc.so.15 libdw.so.1; do : > none/$name; done  # no ELF files
export LD_LIBRARY_PATH="$tmp/none:$LD_LIBRARY_PATH"

run dlaunch --nproc 2 echo here; expect_code 0; expect_out '^\[1\] here$'
run dlaunch --nproc 2 --tls true; expect_code 71; expect_err 'TLS needs libssl.so.3, which this host does not have'
run dlaunch --nproc 2 --bind core true; expect_code 64; expect_err 'needs libhwloc.so.15'

# Ranks do not need these libraries either.
run dlaunch --nproc 2 dlaunch-bench all_reduce -b 1K -n 2 -w 0; expect_code 0

mkfifo never
dlaunch --nproc 1 cat never >job.out 2>job.err </dev/null & started+=($!)
looked_at() { dlaunchctl stacks >out 2>err && grep -q '^rank 0' out; }
wait_until looked_at || fail "no stacks"
grep -q 'built without libdw' out || expect_out 'native stacks need libdw.so.1'

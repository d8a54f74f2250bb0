# The other measurements of dlaunch-bench, besides the time of a call: the machine's limits and the share of
# them that a collective reaches, a late rank, overlap with computation, CPU time.
source "$SOURCE/tests/scenario/common.sh"

# The machine's limits, with and without a launcher, and on one core.
run dlaunch-bench --calibrate; expect_code 0; expect_out 'futex wake'; expect_out 'TCP round trip'
run dlaunch-bench --calibrate --json
expect_code 0
python3 -c 'import json; assert len(json.load(open("out"))["limits"]) == 22' || fail "the limits as JSON"
run taskset -c "$(taskset -cp $$ | grep -o '[0-9]*$')" dlaunch-bench --calibrate
expect_code 0; expect_out 'line hand-off .*not measured: it needs two usable cores'
run dlaunch --nproc 2 --output raw dlaunch-bench --calibrate --csv
expect_code 0; [ "$(grep -c '^read 16 KiB,' out)" = 1 ] || fail "the limits as CSV"
run dlaunch-bench; expect_code 64; expect_err 'name a collective'
run dlaunch-bench --calibrate -b 8; expect_code 64; expect_err 'minbytes needs a collective'

# The share of the limits that a collective reaches.
for c in all_reduce all_gather reduce_scatter broadcast; do
  run dlaunch --nproc 2 --transport shm --output raw dlaunch-bench $c -b 64K -n 5 --calibrate --csv a.csv --json a.json
  expect_code 0; expect_out 'hw% +api%'; expect_out '# line hand-off'
  awk -F, 'NR == 1 && $14 != "hw_pct" || NR > 1 && !(0 < $14 && $14 <= $15) { exit 1 }' a.csv || fail "$c: the shares in the CSV"
  python3 -c 'import json; r = json.load(open("a.json")); assert r["machine"]["limits"] and r["results"][0]["hw_pct"] > 0' || fail "$c: the shares in JSON"
done
run dlaunch --nproc 2 dlaunch-bench gather --calibrate; expect_code 64; expect_err 'no limit is known for gather'
run dlaunch --nproc 2 --transport tcp dlaunch-bench all_reduce --calibrate; expect_code 64; expect_err 'limits are known only for shared memory'

# Cold buffers, a late rank, overlap with computation, CPU time.
run dlaunch --nproc 2 --output raw dlaunch-bench all_reduce -b 64K -n 8 --rotate 3 --cpu
expect_code 0; expect_out '3 buffer pairs'; expect_out 'cpu_s/GB'; expect_out 'values : 0 OK'
run dlaunch --nproc 2 --output raw dlaunch-bench broadcast -b 1K -n 9 --skew 20ms --csv
expect_code 0
awk -F, 'NR > 1 && !(0 < $8 && $8 < 20000) { exit 1 }' out || fail "the time before rank 0 came counts"
# With 100 calls in a row, the time and the CPU time are those of one call.
run dlaunch --nproc 2 --output raw dlaunch-bench all_reduce -b 1M -n 5 --queue 100 --csv
expect_code 0
awk -F, 'NR > 1 && !($12 == 0 && 0 < $8 && $8 < 30 * 1049 * $13) { exit 1 }' out || { cat out; fail "--queue"; }
run dlaunch --nproc 2 --output raw dlaunch-bench all_reduce -b 64K -n 9 --overlap --csv a.csv
expect_code 0; expect_out 'hidden%'
awk -F, 'NR > 1 && !($14 > 0 && $15 > 0 && 0 <= $16 && $16 <= 100) { exit 1 }' a.csv || fail "the overlap"
awk -F, '$7 == "in" && $17 > 0 && 0 <= $18 && $18 <= 100 { told = 1 } END { exit !told }' a.csv || fail "the overlap of buckets"
run dlaunch --nproc 2 dlaunch-bench reduce --overlap; expect_code 64; expect_err 'all_reduce only'
run dlaunch --nproc 2 dlaunch-bench all_reduce --rotate 0; expect_code 64; expect_err 'rotate.*not in range'
run dlaunch --nproc 2 dlaunch-bench all_reduce --skew soon; expect_code 64; expect_err '\-\-skew'

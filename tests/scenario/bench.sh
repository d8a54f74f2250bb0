# dlaunch-bench: every collective, dtype and op is right over shared memory and TCP; CSV and JSON.
source "$SOURCE/tests/scenario/common.sh"

header=collective,ranks,bytes,count,dtype,op,place,median_us,p99_us,algbw_gbs,busbw_gbs,wrong,cpu_s_per_gb
for transport in shm tcp; do
  for n in 2 4; do
    for c in all_reduce reduce_scatter all_gather broadcast reduce gather scatter alltoall sendrecv barrier; do
      run dlaunch --transport $transport --nproc $n --output raw dlaunch-bench $c -b 4 -e 300K -f 37 -d all -o all -r 1 -n 2 -w 0 --csv
      expect_code 0
      [ "$(head -n 1 out)" = "$header" ] || fail "header: $(head -n 1 out)"
      awk -F, 'NR > 1 && $12 != 0 { bad++ } END { exit bad > 0 || NR < 2 }' out || fail "$transport $n $c: wrong results"
    done
  done
done
run dlaunch --nproc 2 dlaunch-bench all_reduce_perf -b 8 -e 64K -f 8
expect_code 0; expect_out 'Out of bounds values : 0 OK'; expect_out 'out-of-place'
run dlaunch --nproc 2 --output raw dlaunch-bench all_gather -b 1K --json
python3 -c 'import json; r = json.load(open("out")); assert r["ranks"] == 2 and r["results"][0]["wrong"] == 0' || fail "JSON"
run dlaunch --nproc 2 --output raw dlaunch-bench --csv a.csv broadcast -b 8 -e 64 -r 1 --json a.json
expect_code 0; expect_out 'Avg bus bandwidth'
[ "$(head -n 1 a.csv)" = "$header" ] && [ "$(wc -l <a.csv)" = 5 ] || fail "the CSV file"
python3 -c 'import json; assert len(json.load(open("a.json"))["results"]) == 4' || fail "the JSON file"
# Sums of many ranks overflow narrow integers. This is not an error.
run dlaunch --nproc 13 --output raw dlaunch-bench all_reduce -b 4K -d all -o all -n 1 -w 0
expect_code 0; expect_out 'Out of bounds values : 0 OK'

# Buffers on GPUs, with the imitations of CUDA and NCCL (tests/support/fake_gpu), if they are built.
fake=$BUILD/tests/support/fake_gpu
if [ -e "$fake/libcuda.so.1" ]; then
  for backend in auto cpu; do
    for c in all_reduce all_gather scatter sendrecv; do
      LD_LIBRARY_PATH=$fake:$LD_LIBRARY_PATH DLAUNCH_BACKEND=$backend run dlaunch --nproc 2 --output raw dlaunch-bench \
        --device cuda $c -b 4 -e 64K -f 64 -d all -r 1 -n 2 -w 0
      expect_code 0; expect_out 'Out of bounds values : 0 OK'
    done
  done
  # Compared with NCCL alone and with the host's memory. The times of the imitations mean nothing.
  beside() { LD_LIBRARY_PATH=$fake:$LD_LIBRARY_PATH run dlaunch --nproc 2 --output raw "$@" --device cuda --compare -n 2 -w 0; expect_code 0; }
  for c in all_reduce reduce_scatter all_gather broadcast reduce; do
    beside dlaunch-bench $c -b 64 -d int32 -o all -r 1 --json j.json
    expect_out 'Out of bounds values : 0 OK'; expect_out 'NCCL by itself: [0-9]+\.[0-9]+\.[0-9]+$'
    expect_out 'time +p99 +algbw +busbw +nccl +over +over +host +#wrong'
    python3 - <<'END' || fail "the JSON file"
import json
for r in json.load(open("j.json"))["results"]:
    served = r["op"] not in ("band", "bor", "bxor")
    assert (r["nccl_us"] is not None) == served and r["host_us"] > 0, r
    assert not served or abs(r["median_us"] - r["nccl_us"] - r["over_nccl_us"]) < 1e-9, r
END
  done
  for c in all_reduce reduce_scatter; do
    beside dlaunch-bench $c -b 64 -d int32 --queue 100; expect_out 'Out of bounds values : 0 OK'
  done
  beside env LOCAL_RANK=0 dlaunch-bench all_reduce -b 64 --csv c.csv
  grep -q 'wrong,cpu_s_per_gb,nccl_us,over_nccl_us,over_nccl_pct,host_us$' c.csv && grep -Eq '^all_reduce,2,64,16,float,sum,out,.*,,,,[0-9.]+$' c.csv || { cat c.csv; fail "the CSV file"; }
  expect_out 'NCCL by itself: rank 0 and rank 1 share one GPU'; expect_out ' N/A +N/A +N/A +[0-9.]+ +0 '
fi
for c in 'all_reduce --compare' '--device cuda gather --compare' '--device cuda --plan all_reduce --compare' \
  'all_reduce --queue 2 --overlap' '--device cuda all_reduce --queue 2 --overlap'; do
  run dlaunch --nproc 2 dlaunch-bench $c; expect_code 64
done
if ! ldconfig -p | grep -q libcuda.so.1; then
  run dlaunch --nproc 2 dlaunch-bench all_reduce --device cuda
  expect_code 71; expect_err 'dlaunch-bench: --device cuda: th'
fi
run dlaunch --nproc 2 dlaunch-bench all_reduce --device cuda --alloc; expect_code 64

run dlaunch --nproc 2 dlaunch-bench nothing; expect_code 64; expect_err "'nothing' is none of"
run dlaunch --nproc 2 dlaunch-bench all_reduce -n -3; expect_code 64; expect_err 'not in range'
run dlaunch --nproc 2 dlaunch-bench all_reduce -b 9000T; expect_code 71; expect_err 'a rank has no memory for its buffers'
run dlaunch --nproc 2 dlaunch-bench all_reduce -b 8 --csv /no/such/x; expect_code 73; expect_err 'cannot write /no/such/x'
run dlaunch --nproc 2 dlaunch-bench all_reduce -d half -o band; expect_code 64; expect_err 'for integers'
run dlaunch --nproc 2 dlaunch-bench all_reduce -d floot; expect_code 64; expect_err "'floot' is none of"
run dlaunch --nproc 1 dlaunch-bench all_reduce -b 1K; expect_code 0

# --plan shows how libdlring would run each size.
run dlaunch --nproc 2 --transport tcp --output raw dlaunch-bench all_reduce -b 8 -e 4M -f 524288 --plan
expect_code 0; expect_out '^ +8 +2 +float +sum  tcp: each with each$'; expect_out '^ +[0-9]+ .* tcp: straight to the owner'
run dlaunch --nproc 2 dlaunch-bench all_reduce --plan -n 3; expect_code 64; expect_err 'leave out -n'
run dlaunch --nproc 2 dlaunch-bench sendrecv --plan; expect_code 64; expect_err 'no collective'

# Buffers of dl_alloc.
for c in all_reduce all_gather; do
  run dlaunch --nproc 2 --output raw dlaunch-bench $c -b 256K -n 5 --alloc; expect_code 0; expect_out 'values : 0 OK'
done
run dlaunch --nproc 2 dlaunch-bench all_reduce -b 9000T --alloc; expect_code 71; expect_err 'a rank has no memory for its buffers'
run dlaunch --nproc 2 dlaunch-bench barrier --alloc; expect_code 64; expect_err 'a barrier has no buffers'

# All pages of the buffers are there before the measurement, or --rotate would measure how the kernel allocates them.
python3 - <<'P' || fail "dlaunch-bench did not touch its buffers"
import resource, subprocess
subprocess.run("dlaunch --nproc 2 --output raw dlaunch-bench broadcast -b 64M -c 0 -n 1 -w 0".split(), check=True)
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
assert most >= 2 * 64 << 10, most
P

# script/bench-peers refuses arguments that it does not know before it measures.
peers="$SOURCE/script/bench-peers"
run "$peers" --op all; expect_code 64; expect_err "'all' is none of: all_reduce"
run "$peers" --sizes 8,x; expect_code 64; expect_err "'x' is not a number"
run "$peers" --op all_gather --np 4 --sizes 8; expect_code 64; expect_err 'multiples of 16 bytes'
run "$peers" --svg; expect_code 64; expect_err 'svg needs a value'
# It measures without Intel MPI, also where MPICH has /bin/mpiexec.hydra.
run env -u I_MPI_ROOT -u CCL_ROOT "$peers" --op broadcast --sizes 8 --rounds 1 "$BUILD"
expect_code 0; expect_out '^broadcast, 2 ranks'; expect_out '^ +8 +[0-9.]+ '
printf '%s\n' 'a 8 0.01' 'a 1024 2' 'b<c 64 0.5' | "$SOURCE/script/plot-busbw" 'A & B' >plot.svg || fail "the plot"
python3 - <<'P' || fail "the plot is no SVG with a line and a legend for each peer"
import xml.etree.ElementTree as tree
root = tree.parse("plot.svg").getroot()
tags = [element.tag.split("}")[1] for element in root]
words = [element.text for element in root if element.text and element.text.strip()]
assert tags.count("polyline") == 2 and tags.count("circle") == 3, tags
assert {"A & B", "a", "b<c", "8 B", "1 KiB"} <= set(words), words
P

# --model predicts a training; tests/scenario/hosts_adviser.sh compares it with real ones.
model=(dlaunch-bench --model 124M --step 350ms --batch 32)
run "${model[@]}" --link 100mbit,40ms
expect_code 0; expect_out '^More than 1 worker does not pay: 2 workers together are slower than 1'; expect_out 'wire codec int8'; expect_out '^Local training .* is worth it'
run "${model[@]}" --link 100mbit,40ms --csv
expect_code 0; [ "$(wc -l <out)" = 7 ] && grep -q '^64,[0-9.,]*,int8,' out || fail "the CSV of a prediction"
run dlaunch --nproc 2 "${model[@]}"
expect_code 64; expect_err 'all ranks are on one host, so there is no link to measure'
run "${model[@]}" --link fast; expect_code 64; expect_err "'fast' is not RATE,ROUND_TRIP"
run "${model[@]}" --link 1gbit,1ms all_reduce; expect_code 64; expect_err 'takes no collective'
run dlaunch-bench --model 124M --link 1gbit,1ms; expect_code 64; expect_err 'needs --step'
run dlaunch-bench all_reduce --batch 3; expect_code 64; expect_err '^dlaunch-bench: --batch needs --model'

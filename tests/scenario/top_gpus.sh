# dlaunchctl top of a job on two hosts, which are both this machine: the load of workers, and the GPUs that an
# imitation of NVML lists, also if that library does not answer for a while.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp"
fakes="$BUILD/tests/support/fake_gpu"

# start_job NVML [VISIBLE]: starts two hosts with two workers each, which see these GPUs. The first host leads.
start_job() {
  local node visible=${2:-'${local_rank}'}; pids=()
  for node in 0 1; do
    LD_LIBRARY_PATH="$fakes:$LD_LIBRARY_PATH" FAKE_NVML=$1 dlaunch --nnodes 2 --node-rank "$node" \
      --rdzv "tcp://127.0.0.1:$port" --job-id j --secret-file secret --nproc 2 --env "CUDA_VISIBLE_DEVICES=$visible" \
      "$BUILD/tests/support/elastic_worker" --steps 1000000000 --step-ms 5 >"job$node" 2>&1 </dev/null &
    pids+=($!); started+=($!)
  done
  wait_until dlaunchctl top --once --interval 0.1 >/dev/null 2>&1 || fail "no job: $(cat job0 job1)"
}
end_job() {
  run dlaunchctl stop; expect_code 0
  for pid in "${pids[@]}"; do wait "$pid"; done
}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(umask 077; echo 0123456789abcdef0123456789abcdef >secret)

run dlaunchctl top; expect_code 69
start_job 'gpus=4,uncorrected=1:3'
all_work() { dlaunchctl top --once --interval 0.2 >out 2>err && [ "$(grep -cE '^ +[0-3] +[0-9]+ .* \(?all_reduce|^ +[0-3] +[0-9]+ .* \(?barrier' out)" = 4 ]; }
wait_until all_work || fail "not four that work"
expect_out '^job j: active, round 1, 4 of at most 4 workers'
expect_out '^RANK +PID +ROUND +CPU% +MEMORY +OP/S +DATA +STEP MS +WAIT% +GPU +GPU% +GPU MEMORY +TEMP +ECC +HOST +STATE +OPERATION'
expect_out '^   0 +[0-9]+ +1 +[0-9]+ +[0-9.]+ .iB +[0-9.]+ +[0-9.]+ .?B/s +[0-9.-]+ +[0-9-]+ +0 +40 +20 GiB of 80 GiB +50 +0 +[^ ]+ +running'
expect_out '^   3 +[0-9]+ +1 .* 1 +41 +20 GiB of 80 GiB +51 +3 '
# Without a terminal dlaunchctl prints one table after the other, until the job ends.
dlaunchctl top --interval 0.2 >looks 2>&1 & watcher=$!
started+=("$watcher")
seen() { [ "$(grep -c '^job j: ' looks)" -ge 3 ]; }
wait_until seen || fail "not again: $(cat looks)"
grep -q $'\x1b' looks && fail "as if to a terminal"
end_job
wait "$watcher"; code=$?; expect_code 0

# A MIG instance: the instance's memory, and the other values of the whole GPU, as far as NVML knows them.
start_job 'gpus=4,mig=3:2' MIG-fake-3-2
wait_until all_work || fail "not four that work"
expect_out '^   0 +[0-9]+ .* 3:2 +- +3 GiB of 10 GiB +53 +0 '
end_job

# One slow answer costs the figures for a while, and not those of the whole job.
export FAKE_NVML_HANGS="$tmp/slow"; touch slow
start_job 'gpus=4,hang'
run dlaunchctl top --once --interval 0.2; expect_code 0; expect_out '^ +3 '
grep -q GPU out && fail "GPUs where NVML does not answer"
wait_until grep -q 'no figures of GPUs: asking NVML took longer than 5 s; dlaunch asks again in 10 s' job0 || fail "no warning: $(cat job0)"
rm slow
gpus_back() { dlaunchctl top --once --interval 0.2 >out 2>err && grep -qE '^   0 .* 0 +40 +20 GiB of 80 GiB' out; }
wait_until gpus_back || fail "no figures any more: $(cat out job0)"
wait_until grep -q 'figures of GPUs are back' job0 || fail "the user does not learn that: $(cat job0)"
end_job
[ "$(grep -c 'no figures of GPUs' job0)" = 1 ] || fail "it warns more than once: $(cat job0)"
[ -z "$(pgrep -f "[g]pu-figures" -s 0)" ] || fail "a process that asks NVML is left"

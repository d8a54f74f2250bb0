# --verify on several hosts: the host of a rank with corrupt data is drained, if the job can do without it,
# and the others go on to the result of one undisturbed process. FLIP: tests/support/flip.cc.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 3
worker=("$BUILD/tests/support/elastic_worker" --steps 100 --step-ms 20 --size 100000 --trusts-sums 1)
"${worker[@]}" >alone 2>&1 || fail "the process alone: $(cat alone)"
result=$(grep -o 'step 100, result [0-9a-f]*' alone) || fail "no result: $(cat alone)"
# corrupt RANK TIME ARGS…: a job on three hosts, in which this rank's data change at this time; N+: from then on.
corrupt() {
  local rank=$1 time=$2; shift 2
  rm -f log
  start_job "1 2 3" --nproc 1 -x FLIP="$rank stream.taken_data $time" -x LD_PRELOAD="$BUILD/tests/support/libdlring_flips.so" \
    --verify results "$@" "${worker[@]}" --log "$tmp/log"
}

# The last time the workers end with 0 whatever happens.
for time in 300 3+ "300 at 0"; do
  ends=(); [ "$time" = "${time% at 0}" ] || ends=(sh -c '"$@"; exit 0' sh)
  corrupt 2 "${time% at 0}" --nnodes 2:3 --max-restarts 3 "${ends[@]}"
  wait_job 60 0
  host=$(sed -n 's/.*rank 2 on host \(host[0-9]\) had corrupt data: all_reduce .*/\1/p' err.1) || fail "no word about rank 2: $(cat err.1)"
  grep -q "host $host is drained.*; 'dlaunchctl undrain $host' takes it back" err.1 || fail "its host is not drained: $(cat err.1)"
  [ "$(cat out.* | grep -c "of 2: $result")" = 2 ] || fail "not the result of one process: $(cat out.*)"
  grep -q '^round [2-9] .* size 2 ' log || fail "two hosts should have gone on: $(cat log)"
done

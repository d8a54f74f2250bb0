# dlaunchctl on the machine of a leader that is killed, and is started again after a while: wait and events --follow
# wait for it, and say so. wait --timeout ends in time.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(umask 077; echo 0123456789abcdef0123456789abcdef >secret)
job=(dlaunch --nnodes 1:2 --node-rank 0 --rdzv "tcp://127.0.0.1:$port" --job-id j --secret-file secret --journal journal --max-restarts 9
  --join-timeout 60s "$BUILD/tests/support/rounds_worker" --until enough --step-ms 10)
start() { "${job[@]}" >>job.out 2>>job.err </dev/null & leader=$!; started+=("$leader"); }
far=(dlaunchctl --leader "127.0.0.1:$port" --secret-file secret --job j)

start
wait_until grep -q 'in round 1 as 0 of 1' job.out || fail "no job: $(cat job.err)"
dlaunchctl wait 2>near & near=$!
"${far[@]}" wait 2>far & far_wait=$!
dlaunchctl events --follow >events 2>events.err & follower=$!
dlaunchctl wait --timeout 4s 2>timeout & timeout=$!
started+=("$near" "$far_wait" "$follower" "$timeout")
wait_until grep -q '"event":"round"' events || fail "no events: $(cat events.err)"
# It is away for longer than dlaunchctl waits for a job that may have ended.
kill -KILL "$leader"; wait "$leader" 2>/dev/null
for f in near far events.err; do
  wait_until grep -qE "^dlaunchctl: .* does not answer: .*; waiting up to 60 s for the job's next leader$" $f || fail "not told: $(cat $f)"
done
wait "$timeout"; code=$?; expect_code 75
grep -q 'the job has not ended within 4 s (--timeout)' timeout || fail "not told why: $(cat timeout)"
for pid in "$near" "$far_wait" "$follower"; do kill -0 "$pid" || fail "gave up: $(cat near far events.err)"; done
start
for f in near far events.err; do
  wait_until grep -qx 'dlaunchctl: job j has its next leader' $f || fail "the next leader is not told: $(cat $f job.err)"
done
touch enough
wait "$leader"; code=$?; expect_code 0
for pid in "$near" "$far_wait" "$follower"; do wait "$pid"; code=$?; expect_code 0; done
tail -1 events | grep -q '"job_ended","exit_code":0' || fail "no end in $(cat events)"

# With --timeout it waits for the first answer of a job elsewhere, too.
run "${far[@]}" wait --timeout 1s; expect_code 75; expect_err "waiting up to 1 s for the job's next leader"
run "${far[@]}" wait; expect_code 69

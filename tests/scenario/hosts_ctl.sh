# dlaunchctl on a machine that has no part in the job: with the job's secret it looks at the job, follows its
# events, changes it and waits for its end; without the secret it learns nothing.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
export PATH="$BUILD/cli/ctl:$PATH"
hosts_up 3
(umask 077; echo another-secret-of-16-bytes >wrong)
tls=; [ "${DLAUNCH_TLS:-0}" = 0 ] || tls=--tls
far() { local secret=$1; shift; run on 3 dlaunchctl --leader host1:29400 --secret-file "$secret" --job test $tls "$@"; }

far secret status; expect_code 69; expect_err '^dlaunchctl: job test does not answer: '
start_job "1 2" --nnodes 2 --nproc 2 "$BUILD/tests/support/rounds_worker" --until enough --step-ms 10
wait_until later_round 0 4 || job_fails "no first round"
far secret status; expect_code 0; expect_out '^active, round 1, 4 workers'
[ "$(grep -cE ' host[12] ' out)" = 4 ] || job_fails "not all workers: $(cat out)"
far wrong status; expect_code 69; expect_err 'does not answer: '
far secret --job other status; [ "$code" != 0 ] || job_fails "it speaks of another job"
far secret top --once --interval 0.2; expect_code 0; expect_out '^RANK '
far secret stacks 3; expect_code 0; expect_out '^rank 3'
far secret tail 3 -n 100; expect_code 0; expect_out 'in round 1 as 3 of 4'
far secret restart 9; expect_code 1; expect_err 'there is no rank 9'
start_on 3 dlaunchctl --leader host1:29400 --secret-file secret --job test $tls events --follow >events 2>follow.err; follower=$!
start_on 3 dlaunchctl --leader host1:29400 --secret-file secret --job test $tls wait 2>wait.err; waiter=$!
wait_until grep -q '"event":"round"' events || job_fails "no events: $(cat events follow.err)"
far secret restart 1; expect_code 0
wait_until grep -q '"reason":"voluntary"' events || job_fails "no restart in $(cat events)"
wait_until later_round 1 4 || job_fails "no second round"
end_steps 60 4
wait "$waiter"; code=$?; expect_code 0
wait "$follower"; code=$?; expect_code 0
tail -1 events | grep -q '"job_ended","exit_code":0' || fail "no end in $(cat events)"

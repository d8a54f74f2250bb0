# dlaunchctl events --follow, tail --follow, wait and top go on when the leader's host is lost and another host takes over: on a
# machine that has no part in the job, and on a host of the job that follows.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
export PATH="$BUILD/cli/ctl:$PATH"
hosts_up 4
rdzv=(--rdzv "file://$PWD/meet" --secret-file "$PWD/secret" --job-id test)
tls=; [ "${DLAUNCH_TLS:-0}" = 0 ] || tls=--tls
start_job "1 2 3" --nnodes 2:3 --nproc 1 --max-restarts 5 "$BUILD/tests/support/rounds_worker" --until enough --step-ms 10
wait_until later_round 0 3 || job_fails "no first round"
first=$(grep -oE '10\.77\.0\.[0-9]+' meet/dlaunch-leader-test | cut -d. -f4)
for h in 1 2 3; do [ $h = "$first" ] || other=$h; done

# Any host of the job answers for the leader.
here() { run on "$other" env TMPDIR="$(host_dir "$other")/tmp" dlaunchctl "$@"; }
here status; expect_code 0; expect_out '^active, round 1, 3 workers'
here restart 9; expect_code 1; expect_err 'there is no rank 9'
here list; expect_code 0; expect_out "test +led from host host$first"
run on 4 dlaunchctl --leader file:///no/such/folder --secret-file secret --job test $tls status; expect_code 69; expect_err 'no/such/folder'
run on 4 dlaunchctl --leader host4:1,host4:2 --secret-file secret --job test $tls status; expect_code 69; expect_err 'host4:2'

far=(dlaunchctl --leader "file://$PWD/meet" --secret-file secret --job test $tls)
start_on 4 "${far[@]}" events --follow >far.events 2>far.err; far_events=$!
start_on 4 "${far[@]}" wait 2>far.wait; far_wait=$!
start_on "$other" env TMPDIR="$(host_dir "$other")/tmp" dlaunchctl events --follow >near.events 2>near.err; near_events=$!
start_on "$other" env TMPDIR="$(host_dir "$other")/tmp" dlaunchctl wait 2>near.wait; near_wait=$!

start_on 4 "${far[@]}" top --json --interval 0.3 >far.top 2>far.top_err; far_top=$!
start_on "$other" env TMPDIR="$(host_dir "$other")/tmp" dlaunchctl top --json --interval 0.3 >near.top 2>near.top_err; near_top=$!

start_on 4 "${far[@]}" tail 0 --follow >tail.out 2>tail.err; tail=$!
wait_until grep -q 'in round 1 as 0 of 3' tail.out || job_fails "no lines: $(cat tail.out tail.err)"
for f in far near; do wait_until grep -q '"event":"round"' $f.events || job_fails "no events: $(cat $f.events $f.err)"; done
for f in far near; do wait_until grep -q '"round":1,' $f.top || job_fails "no look: $(cat $f.top $f.top_err)"; done
host_kill "$first"; wait "${job[$first]}"; unset "job[$first]"
wait_until later_round 1 2 || job_fails "no second round of two hosts"
for f in far near; do
  wait_until grep -q '"event":"lead_taken"' $f.events || job_fails "the next leader's events are missing: $(cat $f.events $f.err)"
done
wait_until grep -q 'in round [2-9] as 0 of 2' tail.out || job_fails "no lines under the next leader: $(cat tail.out tail.err)"
for f in far near; do
  wait_until grep -q '"round":[2-9],' $f.top || job_fails "$f: no look under the next leader: $(tail -c 400 $f.top; cat $f.top_err)"
done
kill "$far_top"
end_steps 60 2
wait "$tail"; code=$?; expect_code 0
[ "$(sort tail.out | uniq -d | wc -l)" = 0 ] || fail "lines come twice: $(cat tail.out)"
grep -q '^done ' tail.out || fail "the last line is missing: $(cat tail.out)"
for one in $far_wait $near_wait $far_events $near_events $near_top; do wait "$one"; code=$?; expect_code 0; done
for f in far near; do
  tail -1 $f.events | grep -q '"job_ended","exit_code":0' || fail "no end in $(cat $f.events)"
  [ "$(sort $f.events | uniq -d | wc -l)" = 0 ] || fail "events come twice: $(cat $f.events)"
done

# The leader's host of a job started by hand is lost, and started again on the same port. The workers of
# the other hosts keep their processes, and the job continues from its journal. Any other host may be
# lost, too.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 3
rounds=$BUILD/tests/support/rounds_worker
pids_of() { grep -o 'pid .*' "out.$1" | sort -u; }
lose() { host_kill "$1"; wait "${job[$1]}"; unset "job[$1]"; }
journals() { ls "$(host_dir 1)"/tmp/dlaunch-journals-*/ 2>/dev/null; }
kept() { local h; for h in "$@"; do [ "$(pids_of "$h" | wc -l)" = 2 ] || job_fails "workers of host $h were started again"; done; }

# The leader's host is killed twice, and then another host. All ranks come back.
by_hand=(--nnodes 2:3 --nproc 2 --max-restarts 9)
start() { start_dlaunch "$1" "${by_hand[@]}" --node-rank $(($1 - 1)) "$rounds" --until enough --step-ms 10; }
for h in 1 2 3; do start $h; done
wait_until later_round 0 6 || job_fails "no first round"
[ "$(journals)" = test-29400 ] || job_fails "no journal: $(journals)"
for time in 1 2; do
  before=$(last_round)
  t0=$(now_ms); lose 1
  wait_until eval "[ \"\$(cat err.2 err.3 | grep -c 'workers stay for 600 s')\" = $((2 * time)) ]" ||
    job_fails "nobody says what happens next"
  start 1
  wait_until later_round "$before" 6 || job_fails "no round of all after the leader's return"
  echo "leader back: next round of all after $(($(now_ms) - t0)) ms"
done
kept 2 3
before=$(last_round)
lose 3
wait_until later_round "$before" 4 || job_fails "no round of the others"
start 3
wait_until later_round $((before + 1)) 6 || job_fails "the third host did not come back"
end_steps 90 6
kept 2
for h in 1 2 3; do nothing_left $h; [ -z "$(ls "$(host_dir $h)/tmp")" ] || job_fails "left on host $h"; done

# The leader is not started again: the others end with a message. A leader that starts later begins a new job.
by_hand=(--nnodes 2 --max-restarts 9)
start_job "1 2" "${by_hand[@]}" --join-timeout 8s "$rounds" --steps 100000 --step-ms 10
wait_until later_round 0 2 || job_fails "no first round"
lose 1
wait_host 60 2 69
grep -q "was not started again within 8 s (--join-timeout); ending this host's workers" err.2 ||
  job_fails "nobody says why"
nothing_left 2
by_hand+=(--join-timeout 20s)
start_job "1 2" "${by_hand[@]}" "$rounds" --steps 5; wait_job 60 0
grep -q "found nothing of an earlier job 'test'; the job starts from the beginning" err.1 || job_fails "not from the beginning"
[ -z "$(journals)" ] || job_fails "left: $(journals)"

# The leader starts without its journal: the workers of the other hosts end, and begin again with the leader.
by_hand+=(--journal "$PWD/journal" "$rounds" --until enough --step-ms 10)
start_job "1 2" "${by_hand[@]}"
wait_until later_round 0 2 || job_fails "no first round"
lose 1
rm journal
start_dlaunch 1 "${by_hand[@]}"
wait_until eval '[ "$(pids_of 2 | wc -l)" = 2 ]' || job_fails "host 2 goes on"
end_steps 60 2
grep -q "the job went on without this host" err.2 && [ "$(pids_of 2 | wc -l)" = 2 ] || job_fails "host 2 goes on"
[ ! -e journal ] || job_fails "the journal is left"

# dlaunch does not repeat tasks that have succeeded, also those of the lost host.
tasks=(--nnodes 2 --nproc 2 --max-restarts 9 --restart-scope worker --journal "$PWD/tasks" bash -c
  'echo "begins $RANK"; [ $LOCAL_RANK = 0 ] || until [ -e enough ]; do sleep 0.05; done')
start_job "1 2" "${tasks[@]}"
# The last words of the journal: the number of finished tasks, their ranks, and the number of accused slots.
done_tasks() { tail -qc 16 tasks 2>/dev/null | od -An -td4 | tr -d ' \n'; }
wait_until eval '[ "$(done_tasks)" = 2020 ]' || job_fails "ranks 0 and 2 are not written down as done"
lose 1; start_dlaunch 1 "${tasks[@]}"
wait_until eval '[ "$(grep -c "begins 1" out.1)" = 2 ]' || job_fails "what was lost is not done again"
touch enough; wait_job 60 0
[ "$(cat out.1 out.2 | grep -o 'begins .' | sort | tr -d '\n')" = "begins 0begins 1begins 1begins 2begins 3" ] ||
  job_fails "not done once each"

# A leader without other hosts in the job, which others may join, continues from its journal, too.
alone=(--nnodes 1:2 --nproc 1 --max-restarts 9 --journal "$PWD/alone" "$rounds" --until enough --step-ms 10)
start_job 1 "${alone[@]}"
wait_until later_round 0 1 || job_fails "no first round of one"
lose 1; start_dlaunch 1 "${alone[@]}"
wait_until later_round 1 1 || job_fails "the one does not go on"
start_dlaunch 2 "${alone[@]}"
wait_until later_round 2 2 || job_fails "the other one cannot join"
end_steps 60 2
[ "$(grep -c 'leading the job from here on' err.1)" = 1 ] || job_fails "not told once"

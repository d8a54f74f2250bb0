# dlaunchctl shows and resizes a running elastic job, restarts a rank of it, and ends it.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH"
export TMPDIR="$tmp"  # hides other jobs of this user

# says EXPRESSION: prints a Python expression over s, the job's status.
says() { dlaunchctl status --json ${job:+--job "$job"} 2>/dev/null | python3 -c "
import json, sys
s = json.load(sys.stdin)
pids = [w['pid'] for w in s['workers']]
print($1)" 2>/dev/null; }
is() { [ "$(says "$1")" = True ]; }
becomes() { wait_until is "$1" || fail "never: $1; $(dlaunchctl status 2>&1)"; }
settled="s['state'] == 'active' and s['target_size'] == s['size'] and all(w['last_operation'] for w in s['workers'])"
job=

run dlaunchctl status; expect_code 69; expect_err 'no job of yours is running here'
run dlaunchctl list; expect_code 0; [ ! -s out ] || fail "a job where there is none"
run dlaunchctl resize; expect_code 64

dlaunch --job-id first --nproc 4 "$BUILD/tests/support/elastic_worker" --steps 1000000000 --step-ms 5 >job.out 2>job.err </dev/null & keeper=$!
started+=("$keeper")
becomes "$settled and s['size'] == 4"
# Between two collectives a worker is in none, so the scenario polls.
in_collective() { run dlaunchctl status; grep -qE '^ *3 +[0-9]+ .* running .* all_reduce #[0-9]+ ' out; }
wait_until in_collective || fail "rank 3 is never in a collective"
expect_code 0
expect_out '^job first: .*/elastic_worker --steps 1000000000 --step-ms 5$'
expect_out '^active, round 1, 4 workers \(at most 4\)'
run dlaunchctl list; expect_code 0; expect_out '^first +active .* 4 workers'

# A smaller round, and then a larger one: the workers that stay keep their processes.
read -r a b c d <<<"$(says '*pids')"
run dlaunchctl resize 2; expect_code 0; expect_out 'from 4 workers to 2'
becomes "$settled and pids == [$a, $b] and s['round'] == 2 and not s['spares']"
gone() { ! alive "$c" && ! alive "$d"; }
wait_until gone || fail "a worker too many is still there"
run dlaunchctl resize 4; expect_code 0
becomes "$settled and pids[:2] == [$a, $b] and s['size'] == 4"
run dlaunchctl resize 5; expect_code 1; expect_err 'from 1 to 4 workers'
run dlaunchctl resize 0; expect_code 1

# A restart of one rank does not count for --max-restarts, and the others keep their processes.
read -r a b c d <<<"$(says '*pids')"
run dlaunchctl restart 2; expect_code 0; expect_out "rank 2 \(pid $c\) is restarted"
becomes "$settled and pids[2] not in ($c, None) and pids[:2] + pids[3:] == [$a, $b, $d]"
is "s['restarts']['used'] == 0" || fail "it cost a restart"
run dlaunchctl restart 4; expect_code 1; expect_err 'there is no rank 4'

# The stack of a stopped worker. The worker stays stopped until SIGCONT.
kill -STOP "$b"
becomes "s['workers'][1]['state'] == 'stopped by a signal'"
run dlaunchctl stacks 1; expect_code 0
expect_out "^rank 1 \(pid $b on "
if ! grep -q 'built without libdw' out; then
  expect_out "^  thread $b \"elastic_worker\", stopped:"
  expect_out '^    #[0-9]+ main at .*elastic'
fi
wait_until is "s['workers'][1]['state'] == 'stopped by a signal'" || fail "it was let go"
kill -CONT "$b"
becomes "$settled and s['workers'][1]['state'] == 'running'"
run dlaunchctl stacks --json; expect_code 0
[ "$(python3 -c 'import json, sys; print(sorted(w["rank"] for w in json.load(sys.stdin)))' <out)" = "[0, 1, 2, 3]" ] || fail "not all were looked at"
# The workers are in one call or in a few: dlaunchctl shows each stack once, with its ranks.
run dlaunchctl stacks; expect_code 0
groups=$(grep -cE '^ranks? [0-9,-]+: ' out); [ "$groups" -ge 1 ] || fail "no groups"
grep -q '^rank.*: not known' out || [ "$(grep -cE '^rank [0-9] \(pid' out)" = "$groups" ] || fail "not one stack of each group"

# With two jobs the user must name one. A job that is not elastic cannot be resized.
dlaunch --job-id second --nproc 1 --max-nproc 2 sleep 1000 >/dev/null 2>&1 </dev/null & other=$!
started+=("$other")
job=second becomes "s['state'] == 'active'"
run dlaunchctl status; expect_code 64; expect_err 'which job\?.*first'
run dlaunchctl --job third stop; expect_code 69; expect_err 'no job has the id third'
run dlaunchctl resize --job second 2; expect_code 1; expect_err 'elastic rounds'
run dlaunchctl stop --job second; expect_code 0
wait "$other"; code=$?; expect_code 143

job=first
all=$(says '*pids')
run dlaunchctl stop; expect_code 0; expect_out 'SIGTERM'
wait "$keeper"; code=$?; expect_code 143
grep -q 'ended by SIGTERM' job.err || fail "report: $(cat job.err)"
for pid in $all; do alive "$pid" && fail "worker $pid is left"; done

# A spare that took a rank has no LOCAL_RANK, and the report has null.
dlaunch --job-id third --nproc 2 --spares 1 --max-restarts 1 --error-file e.json \
  "$BUILD/tests/support/elastic_worker" --steps 1000000000 --step-ms 5 >/dev/null 2>job.err </dev/null & keeper=$!
started+=("$keeper"); job=third
becomes "$settled and len(s['spares']) == 1 and s['spares'][0]['pid'] is not None"
kill -9 "$(says 'pids[0]')"
becomes "$settled and s['round'] >= 2"  # later, if the survivor reports the loss before the agent sees the death
kill -9 "$(says 'pids[0]')"
wait "$keeper"; code=$?; expect_code 137
[ "$(python3 -c 'import json; print(json.load(open("e.json"))["root_cause"]["local_rank"])')" = None ] || fail "$(cat e.json)"
[ -z "$(find . -name 'dlaunch-job-*')" ] || fail "a job's folder is left"

# Events as they come, and the job's end: a program that follows gets the last one, however short the job is.
for try in 1 2 3; do
  dlaunch --job-id fourth --nproc 2 sh -c 'until [ -e enough ]; do sleep 0.05; done; exit 5' >/dev/null 2>job.err </dev/null & keeper=$!
  started+=("$keeper"); job=fourth
  becomes "s['phase'] == 'running'"
  dlaunchctl --job fourth events --follow >events 2>follow.err & follower=$!
  dlaunchctl --job fourth wait 2>wait.err & waiter=$!
  started+=("$follower" "$waiter")
  wait_until grep -q '"event":"round"' events || fail "no round in $(cat events follow.err)"
  # The waiter's first connection asks for the job's state. dlaunch answers the status below after it.
  wait_until connected "$waiter" && dlaunchctl --job fourth status >status && wait_until connected "$waiter" ||
    fail "wait does not ask: $(cat wait.err)"
  touch enough
  wait "$keeper"; code=$?; expect_code 5
  wait "$waiter"; code=$?; [ "$code" = 5 ] || fail "wait: $code, $(cat wait.err)"
  wait "$follower"; code=$?; [ "$code" = 0 ] || fail "events: $code, $(cat follow.err)"
  grep -q '^{"time":.*"event":"job_started"' events && tail -1 events | grep -q '"job_ended","exit_code":5' || fail "events: $(cat events)"
  rm enough events
done
# A dlaunch that is killed says nothing more.
dlaunch --job-id fifth --nproc 1 sleep 1000 >/dev/null 2>&1 </dev/null & keeper=$!
started+=("$keeper"); job=fifth
becomes "s['phase'] == 'running'"
run dlaunchctl events; expect_code 0; expect_out '"event":"start"'
dlaunchctl wait 2>wait.err & waiter=$!
started+=("$waiter")
kill -9 "$keeper"; wait "$keeper" 2>/dev/null
wait "$waiter"; code=$?; expect_code 69

# --events: what happens in a job, as lines of JSON that are as the published schema says.
source "$SOURCE/tests/scenario/common.sh"
source "$SOURCE/tests/scenario/valid_json.sh" || exit 1
export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp"
rounds=$BUILD/tests/support/rounds_worker
# of EXPRESSION: Python's value for it, where e is the list of events and kinds their names.
of() { "$valid_python" -c "
import json, sys
e = [json.loads(line) for line in open('events')]; kinds = [x['event'] for x in e]
print($1)"; }
is() { [ "$(of "$1" 2>/dev/null)" = True ]; }
holds() { is "$1" || fail "not so: $1; $(cat events)"; }
all_valid() { valid 'events.schema.json*' events; rm events; }

run dlaunch --job-id j --events events --nproc 2 true; expect_code 0
holds "kinds[:3] == ['job_started', 'host_joined', 'start'] and kinds[-1] == 'job_ended' and kinds.count('exit') == 2"
holds "e[2]['ranks'] == '0-1' and e[-1]['exit_code'] == 0 and {x['job'] for x in e} == {'j'}"
holds "kinds[-2] == 'goodput' and kinds.count('goodput') == 1 and e[-2]['round'] == 1 and e[-2]['culprit_s'] >= 0"
holds "[x['monotonic'] for x in e] == sorted(x['monotonic'] for x in e) and [x['time'] for x in e] == sorted(x['time'] for x in e)"

# The next job appends. Its failure is restarted once, and then ends it.
run dlaunch --events events --nproc 2 --max-restarts 1 bash -c '[ $RANK = 1 ] && exit 7; exec sleep 1000'; expect_code 7
holds "kinds.count('job_ended') == 2 and e[-1]['exit_code'] == 7 and 'exit code 7' in e[-1]['what']"
holds "[x['kind'] for x in e if x['event'] == 'failure'] == ['exit_code'] * 2"
holds "[(x['reason'], x['round'], x['restarts_used'], x['restarts_left']) for x in e if x['event'] == 'restart'] == [('exit_code', 2, 1, 0)]"
holds "[x['round'] for x in e if x['event'] == 'start'] == [1, 1, 2] and all(x['stopped'] for x in e if x['event'] == 'exit' and x['signal'])"
all_valid
run dlaunch --events events ./no-such-program; expect_code 127
holds "'start_failure' in kinds and e[-1]['exit_code'] == 127"; all_valid
run dlaunch --events /nonexistent/e true; expect_code 73; expect_err '^dlaunch: --events: write /nonexistent/e'

# An elastic job: commits, orders of dlaunchctl, and the loss of a rank.
dlaunch --events events --nproc 3 --max-restarts 3 "$BUILD/tests/support/elastic_worker" --steps 1000000000 --step-ms 5 >job.out 2>&1 </dev/null & keeper=$!
started+=("$keeper")
wait_until is "'commit' in kinds" || fail "no commit: $(cat job.out events)"
run dlaunchctl resize 2; expect_code 0
wait_until is "('resize', 3, 2) in [(x['event'], x.get('from'), x.get('to')) for x in e]" || fail "no resize: $(cat events)"
run dlaunchctl restart 1; expect_code 0
wait_until is "[x['event'] for x in e if x['event'] in ('restart', 'round')][-2:] == ['restart', 'round']" || fail "no restart: $(cat events)"
holds "[x['reason'] for x in e if x['event'] == 'restart'] == ['voluntary'] and kinds.count('order') == 2"
pid=$(dlaunchctl status --json | "$valid_python" -c 'import json, sys; print(json.load(sys.stdin)["workers"][1]["pid"])')
kill -9 "$pid"
wait_until is "[(x['reason'], x['restarts_used']) for x in e if x['event'] == 'restart'][1:] == [('signal', 1)]" || fail "no restart: $(cat events)"
wait_until is "kinds[::-1].index('round') < kinds[::-1].index('restart')" || fail "no round: $(cat events)"
holds "[(x['rank'], x['signal'], x['pid']) for x in e if x['event'] == 'failure' and x['lost_peer'] is None] == [(1, 'SIGKILL', $pid)]"
holds "all(x['without_s'] is None or 0 < x['without_s'] < 60 for x in e if x['event'] == 'round')"
# The goodput at the end of each round, whose accounts sum up to the time of all ranks.
holds "[x['round'] for x in e if x['event'] == 'goodput'] == [x['round'] for x in e if x['event'] == 'round'][:-1]"
holds "all(abs(sum(x[a + '_s'] for a in 'compute transfer waiting recovery lost_work start'.split()) - x['rank_seconds']) < 0.01 for x in e if x['event'] == 'goodput')"
holds "[x for x in e if x['event'] == 'goodput'][-1]['recovery_s'] > 0"
versions="[x['version'] for x in e if x['event'] == 'commit']"
holds "$versions == sorted(set($versions))"
kill -TERM "$keeper"; wait "$keeper"; code=$?; expect_code 143
holds "kinds[-1] == 'job_ended' and [x['signal'] for x in e if x['event'] == 'signal'] == ['SIGTERM']"
all_valid

# A rank for which the others wait, and one that is slow. A machine that is busy may hide a slow one.
run dlaunch --events events --nproc 2 --hang-timeout 3s "$rounds" --hang 1; expect_code 137
holds "[(x['action'], x['ranks']) for x in e if x['event'] == 'hang'][-1] == ('replace', '1')"
holds "('failure', 'hung') in [(x['event'], x.get('kind')) for x in e]"
all_valid
for try in 1 2 3 4 5 6; do
  run dlaunch --events events --nproc 3 --straggler-window 300ms --straggler-ratio 1.5 "$rounds" --steps 800 --step-ms 4 --slow 1
  is "('slow', 1, None) in [(x['action'], x['rank'], x['peer']) for x in e if x['event'] == 'straggler']" && break
done
holds "('slow', 1, None) in [(x['action'], x['rank'], x['peer']) for x in e if x['event'] == 'straggler']"
holds "all(x['ratio'] > 1.5 for x in e if x['event'] == 'straggler' and x['action'] == 'slow')"
all_valid

# A disk that is full for a while: no line is torn, and what is missing is counted.
mkdir disk
cat >full.sh <<'S'
mount -t tmpfs -o size=256k none disk || exit 77
dlaunch --events disk/events --nproc 1 elastic_worker --steps 1000000000 --step-ms 20 --until enough >out 2>err </dev/null & job=$!
until grep -qs commit disk/events; do read -rt 0.05 <> <(:); done
head -c 1M /dev/zero >disk/filler 2>/dev/null
until grep -q 'what does not fit is lost' err; do read -rt 0.05 <> <(:); kill -0 $job || exit 2; done
rm disk/filler
until grep -qs '"lost"' disk/events; do read -rt 0.05 <> <(:); kill -0 $job || exit 3; done
touch enough; wait $job || exit 4
cp disk/events events
S
PATH="$BUILD/tests/support:$PATH" unshare -m bash full.sh 2>full.err; code=$?
[ $code = 77 ] || [ $code = 1 ] && ! [ -e events ] && skip "a full disk needs a mount of its own: $(cat full.err)"
expect_code 0
holds "sum(x['events'] for x in e if x['event'] == 'lost') > 0 and kinds[-1] == 'job_ended'"
all_valid

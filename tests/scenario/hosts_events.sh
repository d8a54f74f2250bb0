# --events of a job on several hosts: a lost host, and the leader's, whose successor appends to the same file.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
source "$SOURCE/tests/scenario/valid_json.sh" || exit 1
hosts_up 3
is() { [ "$("$valid_python" -c "
import json
e = [json.loads(line) for line in open('events')]; kinds = [x['event'] for x in e]
print($1)" 2>/dev/null)" = True ]; }
comes() { wait_until is "$1" || job_fails "not so: $1; $(cat events)"; }
rdzv=(--secret-file "$PWD/secret" --job-id test --rdzv "file://$PWD/meet")
kill_host() { host_kill "$1"; wait "${job[$1]}"; unset "job[$1]"; }
leader() { grep -oE '10\.77\.0\.[0-9]+:[0-9]+' meet/dlaunch-leader-test | tail -1 | sed -E 's/.*\.([0-9]+):.*/\1/'; }

start_job "1 2 3" --events "$PWD/events" --nnodes 1:3 --nproc 1 --max-restarts 5 "$BUILD/tests/support/rounds_worker" --until enough --step-ms 10
wait_until later_round 0 3 || job_fails "no first round"
comes "{x['host'] for x in e if x['event'] == 'host_joined'} == {'host1', 'host2', 'host3'} and kinds[0] == 'queued'"
first=$(leader); other=$((first % 3 + 1)); last=$((6 - first - other))
kill_host $other
wait_until later_round 1 2 || job_fails "no second round of two hosts"
comes "[(x['host'], len(x['ranks'])) for x in e if x['event'] == 'host_lost'] == [('host$other', 1)]"
comes "('resize', 3, 2) in [(x['event'], x.get('from'), x.get('to')) for x in e]"
before=$(last_round); kill_host $first
wait_until later_round "$before" 1 || job_fails "no round of the last host"
comes "[x['host'] for x in e if x['event'] == 'lead_taken'] == ['host$last'] and kinds[-1] in ('round', 'resize', 'commit')"
end_steps 60 1
comes "kinds[-1] == 'job_ended' and kinds.count('job_started') == 1"
valid 'events.schema.json*' events

# --metrics: Debian's Prometheus scrapes a real job, and promtool checks the text and the rules of the examples.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH" TMPDIR="$tmp"
elastic=$BUILD/tests/support/elastic_worker
get() { python3 - "$@" <<'P'
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Accept": sys.argv[2]} if sys.argv[2:] else {})
print(urllib.request.urlopen(request, timeout=10).read().decode(), end="")
P
}
where() { grep -oE 'http://[^ ]*/metrics' job.err | head -1; }
shows() { get "$(where)" >text 2>/dev/null && grep -qE "^dlaunch_$1" text; }

# The kernel chooses the port, and dlaunch prints it.
dlaunch --job-id j --metrics 0 --nproc 3 --max-restarts 3 --straggler-window 1s "$elastic" --steps 1000000000 --step-ms 5 >job.out 2>job.err </dev/null & keeper=$!
started+=("$keeper")
wait_until where >/dev/null && wait_until shows 'commits_total\{job_id="j"\} [1-9]' || fail "no metrics: $(cat text)"
wait_until shows 'steps_total\{job_id="j"\} [1-9]' || fail "no steps: $(cat text)"
# Looks add up.
wait_until shows 'collective_seconds_count\{job_id="j",kind="all_reduce",size="256KiB"\} [1-9]' || fail "no collectives: $(cat text)"
for line in 'collective_seconds_bucket\{job_id="j",kind="all_reduce",size="256KiB",le="\+Inf"\} [1-9]' \
  'collective_bytes_per_second_bucket\{job_id="j",kind="all_reduce",size="256KiB",le="\+Inf"\} [1-9]' 'job_state\{job_id="j",state="running"\} 1' 'job_workers\{job_id="j"\} 3' 'rounds_total\{job_id="j"\} [1-9]' \
  'worker_up\{job_id="j",rank="2",host="[^"]+"\} 1' 'worker_memory_bytes\{job_id="j",rank="0",host="[^"]+"\} [1-9][0-9]{5}' \
  'rank_step_seconds\{job_id="j",rank="1"\} 0\.[0-9]' 'host_ranks\{job_id="j",host="[^"]+"\} 3'; do
  wait_until shows "$line" || fail "no $line in $(cat text)"
done
grep -q EOF text && fail "OpenMetrics, for which nobody asked"
get "$(where)" 'application/openmetrics-text; version=1.0.0' >open; [ "$(tail -1 open)" = '# EOF' ] || fail "no OpenMetrics: $(cat open)"
[ "$(dlaunchctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["phase"])')" = running ] || fail "no phase"
# The accounts of goodput: all of them, and none falls, also when a failure makes work lost work.
wait_until shows 'rank_seconds_total\{job_id="j",account="compute"\} [1-9]' || fail "no goodput: $(cat text)"
for line in 'goodput_ratio\{job_id="j"\} 0\.[0-9]*[1-9]' 'rank_seconds_total\{job_id="j",account="transfer"\} ' \
  'rank_seconds_total\{job_id="j",account="start"\} [0-9.]*[1-9]' 'rank_seconds_total\{job_id="j",account="waiting",culprit="[0-2]",cause="compute"\} '; do
  wait_until shows "$line" || fail "no $line in $(cat text)"
done
cp text before
pid=$(dlaunchctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["workers"][1]["pid"])')
kill -9 "$pid"
wait_until shows 'restarts_total\{job_id="j",reason="signal"\} 1' || fail "the restart is not counted: $(cat text)"
grep -q 'failures_total{job_id="j",kind="signal"} 1' text || fail "the failure is not counted"
wait_until shows 'rank_seconds_total\{job_id="j",account="recovery",culprit="1"\} [0-9.]*[1-9]' || fail "rank 1 has cost no recovery: $(cat text)"
python3 - <<'P' || fail "a counter of goodput has fallen, or is gone"
def accounts(path): return dict(line.rsplit(" ", 1) for line in open(path) if line.startswith("dlaunch_rank_seconds_total{"))
before, now = accounts("before"), accounts("text")
wrong = {key: (before[key], now.get(key)) for key in before if float(now.get(key, -1)) < float(before[key])}
if wrong or not before: raise SystemExit(wrong)
P

# Other requests, and an address that is taken.
get "$(where | sed 's/metrics/secret/')" 2>/dev/null && fail "it serves something else"
port=$(where | grep -oE '[0-9]+/' | tr -d /)
run dlaunch --metrics "$port" true; expect_code 69; expect_err "^dlaunch: --metrics: listen on 127.0.0.1:$port: Address already in use; another job"
# Clients that say nothing, or that do not read, hold up nobody.
python3 - "$port" <<'P' &
import socket, sys
idle = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(12)]
for one in idle[6:]: one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
open("idle", "w").close()
for one in idle: one.recv(1 << 20)
P
idle=$!; started+=("$idle"); wait_until test -e idle || fail "no idle clients"
wait_until shows 'job_workers' || fail "idle clients hold up others"
kill "$idle" 2>/dev/null
# At a path, which goes with the job.
run dlaunch --metrics unix:sock --nproc 1 python3 -c '
import socket; s = socket.socket(socket.AF_UNIX); s.connect("sock"); s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
while data := s.recv(65536): print(data.decode(), end="")'
expect_code 0; expect_out 'dlaunch_job_info\{'; [ ! -e sock ] || fail "the socket is left"

finish() { kill -TERM "$keeper"; wait "$keeper"; code=$?; expect_code 143; }
command -v promtool >/dev/null && command -v prometheus >/dev/null || { finish; skip "no promtool and prometheus (prometheus): text only"; }
get "$(where)" | promtool check metrics >lint 2>&1 || fail "promtool: $(cat lint)"
cp "$SOURCE"/examples/monitoring/* . || fail "no examples"
promtool check rules dlaunch.rules.yml >lint 2>&1 || fail "$(cat lint)"
promtool test rules rules_test.yml >lint 2>&1 || fail "$(cat lint)"
sed -e "s/127.0.0.1:9400/127.0.0.1:$port/" -e 's/scrape_interval: 15s/scrape_interval: 250ms\n  evaluation_interval: 250ms/' prometheus.yml >scrape.yml
promtool check config scrape.yml >lint 2>&1 || fail "$(cat lint)"
at=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file=scrape.yml --storage.tsdb.path=data --web.listen-address="127.0.0.1:$at" >prometheus.log 2>&1 & server=$!
started+=("$server")
# query EXPRESSION CONDITION: Prometheus' answer to it, as Python's r, meets the condition.
query() { get "http://127.0.0.1:$at/api/v1/query?query=$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$1")" 2>/dev/null |
  python3 -c "
import json, sys
r = json.load(sys.stdin)['data']['result']
sys.exit(0 if r and ($2) else 1)" 2>/dev/null; }
wait_until query 'up{job="dlaunch"}' 'r[0]["value"][1] == "1"' || fail "not scraped: $(cat prometheus.log)"
wait_until query dlaunch_job_workers '(r[0]["metric"]["job_id"], r[0]["value"][1]) == ("j", "3")' || fail "no workers in Prometheus"
wait_until query 'rate(dlaunch_steps_total[10s])' 'float(r[0]["value"][1]) > 0' || fail "no rate of steps"
wait_until query 'dlaunch:wait_ratio:by_culprit' 'all(0 <= float(x["value"][1]) < 1 for x in r)' || fail "no wait ratio"
wait_until query 'dlaunch:goodput:ratio30m' '0 < float(r[0]["value"][1]) <= 1' || fail "no goodput in Prometheus"
wait_until query 'dlaunch_restarts_total{reason="signal"}' 'r[0]["value"][1] == "1"' || fail "no restarts"
# Each expression of the dashboard means something to Prometheus.
python3 - <<'P' >expressions
import json
for panel in json.load(open("dashboard.json"))["panels"]:
    for target in panel["targets"]: print(target["expr"].replace("$job_id", "j"))
P
while read -r expression; do
  get "http://127.0.0.1:$at/api/v1/query?query=$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$expression")" >answer ||
    fail "the dashboard's $expression: $(cat answer)"
done <expressions
finish
kill "$server"; wait "$server" 2>/dev/null; :

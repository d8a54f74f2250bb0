# --trace writes a timeline that viewers can read: operations of each rank, whom each wait was for, rounds, failures.
# Perfetto's trace_processor reads it where Python's package perfetto is there with its binary (PERFETTO_PYTHON names a
# Python that has it).
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/rounds_worker

# Other load makes ranks late, too.
first=(); chrt -r 1 true 2>/dev/null && first=(chrt -r 1)
run ${first[@]+"${first[@]}"} dlaunch --nproc 3 --max-restarts 9 --straggler off --trace trace.json --error-file report.json sh -c \
  '[ "$DLAUNCH_ROUND.$RANK" != 1.2 ] || { until grep -qs "in round 1 as 2 of" out; do sleep 0.05; done; sleep 2; kill -9 $$; } & exec "$0" --steps 200 --step-ms 10 --bytes 4000 --slow 1 --factor 3' "$worker"
expect_code 0
cat >check.py <<'PY'
import collections, json, re
trace = json.load(open("trace.json"))
events = trace["traceEvents"]
named = collections.Counter(event["name"] for event in events if event["ph"] in "Xi")
# A round that ends before its workers are in it has no place there.
rounds = {f"round {number}" for number in re.findall("in round ([0-9]+) ", open("out").read())}
assert len(rounds) == 2 and "round 1" in rounds, rounds
assert {name: count for name, count in named.items() if name.startswith("round ")} == dict.fromkeys(rounds, 1), named
assert named["killed by signal 9 (SIGKILL)"] + named["killed by SIGKILL"] >= 1 or any("KILL" in name for name in named), named
reduces = [event for event in events if event["ph"] == "X" and event["name"] == "all_reduce"]
assert {event["pid"] for event in reduces} == {1, 2, 3}, "each rank has operations"
assert any(event["args"]["bytes"] == 4000 for event in reduces), "the bytes of an operation"
assert all(event["args"]["algorithm"] == "shm: one shot" for event in reduces if event["args"]["bytes"] == 4000)
# In round 1 rank 1 is late by 20 ms a step: most of the waits are for it.
waits = collections.Counter()
for event in events:
    if event.get("cat") == "wait" and event["ph"] == "X":
        waits[event["args"]["rank"]] += event["dur"]
assert max(waits, key=waits.get) == 1, waits
begins = {event["id"]: event for event in events if event["ph"] == "s"}
ends = {event["id"]: event for event in events if event["ph"] == "f"}
assert begins and begins.keys() == ends.keys(), "each arrow has two ends"
assert all(begins[i]["pid"] != ends[i]["pid"] for i in begins), "arrows lead to another rank"
# On one track no slice of a rank overlaps another.
left = {}
for event in sorted((e for e in events if e["ph"] == "X" and e.get("tid") == 1 and e["pid"] <= 3), key=lambda e: e["ts"]):
    assert event["ts"] >= left.get(event["pid"], 0) - 0.002, event
    left[event["pid"]] = event["ts"] + event["dur"]
ranks = trace["otherData"]["ranks"]
assert [rank["rank"] for rank in ranks] == [0, 1, 2] and all(rank["clock_error_s"] == 0 for rank in ranks), ranks
PY
python3 check.py 2>why || fail "$(cat why)"

# The time that it takes to write the timeline is no part of the job's time in its report.
python3 "$SOURCE/tests/scenario/goodput_check.py" report.json >why || fail "$(cat why)"

# A file that cannot be made costs a warning.
run dlaunch --nproc 1 --trace no/such/folder/trace.json true
expect_code 0; expect_err 'no/such/folder/trace.json'
run dlaunch --nproc 1 true; [ ! -s err ] || fail "said without --trace: $(cat err)"

python=${PERFETTO_PYTHON:-python3}
"$python" -c 'import perfetto.trace_processor' 2>/dev/null || skip "trace_processor: Python has no package perfetto"
"$python" - >perfetto.out 2>&1 <<'PY' || { grep -qiE "'curl'|urlopen|URLError|resolve" perfetto.out && skip "trace_processor: the package perfetto could not fetch its binary"; fail "$(cat perfetto.out)"; }
from perfetto.trace_processor import TraceProcessor
tp = TraceProcessor(trace="trace.json")
count = lambda query: next(iter(tp.query(query))).n
assert count("select count(*) as n from slice where name = 'all_reduce'") > 100
assert count("select count(*) as n from flow") > 10
assert count("select count(*) as n from process where name glob 'rank * on *'") == 3
assert count("select count(*) as n from stats where severity = 'error' and value > 0") == 0
PY

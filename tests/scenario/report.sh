# The report names the cause and quotes it, for example a Python traceback. It is also there as JSON.
source "$SOURCE/tests/scenario/common.sh"

echo mine > other; ln -s other report.json.new  # a link at the temporary name must not be followed
run dlaunch --nproc 3 --error-file report.json sh -c '[ $RANK = 1 ] && { echo "disk on fire" >&2; exit 9; }; sleep 60'
expect_code 9; expect_err '^dlaunch:     disk on fire$'
[ "$(tail -n1 err | cut -c1-8)" = 'dlaunch:' ] || fail "the report is not the last thing"
[ "$(cat other)" = mine ] && [ ! -L report.json ] || fail "the report has followed a link"
python3 - <<'P' || fail "report.json: $(cat report.json)"
import json
r = json.load(open("report.json"))
c = r["root_cause"]
assert r["exit_code"] == 9 and r["end"] == "worker_failed", r
assert c["rank"] == 1 and c["exit_code"] == 9 and c["stderr_tail"] == ["disk on fire"], c
assert sorted(o["rank"] for o in r["others"]) == [0, 2] and {o["role"] for o in r["others"]} == {"stopped"}
P
cat > fail.py <<'P'
import json, os, sys
message = {"message": "ValueError: bad batch", "extraInfo": {"py_callstack": "Traceback:\n  line 7\nValueError: bad batch", "timestamp": "1"}}
json.dump({"message": message}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
sys.exit(1)
P
run dlaunch --nproc 1 python3 fail.py
expect_code 1; expect_err 'ValueError: bad batch'; expect_err '  line 7'

# The report says that a SIGKILL did not come from dlaunch.
run dlaunch --nproc 2 sh -c '[ $RANK = 0 ] && kill -9 $$; sleep 60'
expect_code 137; expect_err 'rank 0 .* killed by SIGKILL'; expect_err 'nothing here sent this SIGKILL'

# Horovod's API for PyTorch: every collective gives the right result, in whatever order the ranks submit it.
# Trainings reach the weights of one process. The messages about a stall, a mismatch and a lost rank name the
# ranks.
source "$SOURCE/tests/scenario/common.sh"
need_torch
need_package
export PYTHONPATH="$BUILD/python${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
here=$SOURCE/tests/scenario

# Rank 1 is late until dlaunch has warned the other ranks.
# calls RANKS HOROVOD_TIMELINE
calls() {
  rm -f stalled refused.* ready.* out; : >err
  dlaunch --nproc "$1" -x HOROVOD_STALL_CHECK_TIME_SECONDS=2 -x HOROVOD_TIMELINE="$2" "$python" -X faulthandler "$here/horovod_calls.py" 1 >out 2>err </dev/null & job=$!
  started+=("$job")
  warned() { grep -q "allreduce of 'late' waits for" err || ! kill -0 "$job" 2>/dev/null; }
  wait_until 400 warned || fail "nobody was warned of a stall"
  touch stalled
  wait "$job"; code=$?; expect_code 137
  expect_err "dlaunch.horovod: allreduce of 'late' waits for [0-9]+ s: ranks? 0[0-9, ]* submitted it, and rank 1 did not"
  expect_err 'rank 1 .* failed first: killed by SIGKILL'
  [ "$(grep -c ' is right$' out)" = 15 ] || fail "not every part is right"
  [ "$(grep -c 'told: rank 1 (pid [0-9]* on .*was lost' out)" = $((2 * ($1 - 1))) ] || fail "not every rank was told"
}
# A timeline that cannot be written causes a warning. A DYNAMIC timeline begins with start_timeline().
calls 2 /dev/full
[ "$(grep -c 'dlaunch.horovod: the timeline /dev/full ends here: .*No space left' err)" = 2 ] || fail "not one warning for each init()"
calls 4 /no/such/folder/timeline.json
[ "$(grep -c 'cannot write the timeline /no/such/folder/timeline.json, and training continues without it: ' err)" = 2 ] ||
  fail "not one warning for each init()"
calls 4 DYNAMIC
[ ! -e DYNAMIC ] || fail "HOROVOD_TIMELINE=DYNAMIC has written a file"
for ranks in 2 4; do
  with=; [ $ranks = 4 ] || with=without_numpy
  $with run dlaunch --nproc $ranks -x HOROVOD_TIMELINE="$PWD/timeline.json" "$python" -X faulthandler "$here/horovod_train.py"
  expect_code 0; expect_out '^\[0\] trainings are right$'
  [ "$(grep -c 'knows of the fault$' out)" = $ranks ] || fail "a fault of rank 0's thread did not reach every rank"
done
"$python" - <<'P' || fail "HOROVOD_TIMELINE: $(head -c 2000 timeline.json)"
import json
events = json.load(open("timeline.json"))
rows = {event["args"]["name"]: event["tid"] for event in events if event["ph"] == "M"}
mine = [event for event in events if event["tid"] == rows["second.weight"]]
names = [event["name"] for event in mine if event["ph"] == "B"]
assert names[:4] == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"] * 2 and len(names) % 2 == 0, names
assert "".join(event["ph"] for event in mine if event["ph"] in "BE") == "BE" * len(names), mine
assert sorted(event["name"] for event in mine[:7] if event["ph"] == "X") == ["0", "1", "2", "3"], mine
P

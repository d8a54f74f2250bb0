# The ledger of goodput closes, and books known costs to the right rank: a rank that --chaos stops, a rank that is
# slower by 20 ms a step, a rank that is killed, and the work that its failure loses.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/rounds_worker
export TMPDIR=$PWD  # dlaunchctl sees this job alone

# measured JOB EXPRESSION…: a machine that is busy with other things may make any rank late: it gets six tries.
measured() {
  local job=$1 try; shift
  for try in 1 2 3 4 5 6; do
    "$job"; expect_code 0
    python3 "$SOURCE/tests/scenario/goodput_check.py" report.json "$@" >check.out 2>&1 && return
    [ $? = 3 ] || break
  done
  fail "$(cat check.out)"
}
# Other load makes ranks late, and the ledger books that, too.
first=(); chrt -r 1 true 2>/dev/null && first=(chrt -r 1)
goodput() { ${first[@]+"${first[@]}"} dlaunch --nproc 3 --straggler off --goodput --error-file report.json "$@"; }

# A rank that --chaos stops, in a collective or outside, costs the two others as long as it stands.
stops() { [ "$(grep -c 'rank . is stopped' err)" -ge 3 ]; }
stopped_ranks() {
  rm -f enough
  goodput --chaos stop=4s:1500ms "$worker" --step-ms 10 --until enough >out 2>err </dev/null &
  local job=$!; started+=($job)
  wait_until 100 stops || fail "--chaos stops too rarely"
  "$BUILD/cli/ctl/dlaunchctl" goodput >ctl.out 2>&1 || fail "dlaunchctl goodput: $(cat ctl.out)"
  grep -q '^goodput [0-9.]* % of 3 ranks' ctl.out || fail "dlaunchctl goodput says: $(cat ctl.out)"
  touch enough; wait "$job"; code=$?
  grep -o 'rank . is stopped' err | cut -d' ' -f2 >stops
}
measured stopped_ranks "all(near(due('waiting', rank), 2 * 1.5 * open('stops').read().split().count(str(rank)) / total) for rank in range(3))"
expect_err '^dlaunch: goodput [0-9.]+ % of 3 ranks'
expect_err '^dlaunch:   rank [0-2] cost [0-9.]+ %: waits for its compute'

# A rank that takes 20 ms more for each of 400 steps costs the two others 8 s each.
slow_rank() { run goodput "$worker" --steps 400 --step-ms 20 --slow 1 --factor 2; }
measured slow_rank "near(due('waiting', 1), 2 * 400 * 0.020 / total)" "g['costs'][0]['rank'] == 1" "g['sees_waits']"

# A program that makes no commits loses the whole attempt, and dlaunch sees none of its waits.
no_commits() {
  run ${first[@]+"${first[@]}"} dlaunch --nproc 2 --max-restarts 1 --error-file report.json sh -c \
    'sleep 8; [ "$DLAUNCH_ROUND.$RANK" != 1.1 ] || kill -9 $$; sleep 8; [ "$DLAUNCH_ROUND" = 2 ]'
}
measured no_commits "near(due('lost_work', 1), 2 * 8 / total)" "near(g['compute_s'] / total, 2 * 16 / total)" "not g['sees_waits']"
grep -q goodput err && fail "the report speaks of goodput without --goodput"

# The members of an elastic program keep their state: its failure costs the recovery alone.
killed_rank() {
  run goodput --max-restarts 9 sh -c \
    '[ "$DLAUNCH_ROUND.$RANK" != 1.2 ] || { sleep 4; kill -9 $$; } & exec "$0" --steps 300 --step-ms 20' "$worker"
}
measured killed_rank "g['lost_work_s'] == 0" "due('recovery', 2) > 0" "near(g['recovery_s'] / total, due('recovery', 2))" \
  "g['costs'][0]['rank'] == 2"

# A rank that collects garbage, or reads input, makes the others wait for that. The package for Python says so.
compgen -G "$BUILD/python/dlaunch/_core*.so" >/dev/null || skip "goodput in Python: the package was not built"
cat >causes.py <<'PY'
import gc, time
import dlaunch
comm = dlaunch.init()
class Slow:
    def __del__(self):
        time.sleep(0.3)
gc.disable()
for step in range(20):
    if comm.rank == 1 and step % 2 == 0:
        garbage = Slow()
        garbage.itself = garbage
        del garbage
        gc.collect()
    elif comm.rank == 1:
        with dlaunch.reading_input():
            time.sleep(0.2)
    comm.barrier()
PY
causes() { PYTHONPATH=$BUILD/python run goodput causes.py; }
measured causes "near(g['costs'][0]['waiting_s']['gc'] / total, 2 * 10 * 0.3 / total)" \
  "near(g['costs'][0]['waiting_s']['input'] / total, 2 * 10 * 0.2 / total)" "g['costs'][0]['rank'] == 1"

# dlaunch watches the workers on every host of a job: hangs, stopped workers, slow workers, --chaos and
# dlaunchctl. The report of failures on two hosts says which was first.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
export PATH="$BUILD/cli/ctl:$PATH"
rounds=$BUILD/tests/support/rounds_worker
hosts_up 3
job=()
ctl() { local h=$1; shift; run on "$h" env TMPDIR="$(host_dir "$h")/tmp" dlaunchctl "$@"; }
says() { on 1 env TMPDIR="$(host_dir 1)/tmp" dlaunchctl status --json 2>/dev/null | python3 -c "
import json, sys
s = json.load(sys.stdin)
print($1)" 2>/dev/null; }
is() { [ "$(says "$1")" = True ]; }
becomes() { wait_until is "$1" || job_fails "never: $1"; }

# begin HOSTS ARGS…: like start_job, but host H is node H - 1.
begin() {
  local h hosts=$1; shift
  rm -f out.* err.*
  for h in $hosts; do start_dlaunch "$h" --node-rank $((h - 1)) "$@"; done
}

# A rank of another host hangs: dlaunch names its host, prints its stacks, kills it and replaces it.
begin "1 2 3" --nnodes 3 --nproc 1 --max-restarts 5 --hang-timeout 3s "$rounds" --steps 100000000 --step-ms 5 --hang 2
wait_until later_round 1 3 || job_fails "who hangs on another host was not replaced"
expect_in() { grep -qE "$2" "$1" || job_fails "no line like '$2' in $1"; }
expect_in err.1 'rank 2 has not entered all_reduce #[0-9]+, where rank 0-1 are waiting.*; rank 2 is on host host3'
expect_in err.1 'stacks of rank 2 \(pid [0-9]+ on host host3\)'
expect_in err.1 'stacks of rank [01] \(pid [0-9]+ on host host[12]\)'
grep -q 'built without libdw' err.1 || expect_in err.1 'hang_forever'
expect_in err.1 'rank 2 \(pid [0-9]+ on host host3\) failed first: it hung, .*starting it again: round 2'

# The leader sees all workers. It warns about a stopped one, and replaces it if it stays stopped.
becomes "[(w['rank'], w['host']) for w in s['workers']] == [(0, 'host1'), (1, 'host2'), (2, 'host3')] and
         all(w['pid'] and w['last_operation'] and w['ran_s'] > 0 and w['local_rank'] == 0 for w in s['workers'])"
pid=$(says "s['workers'][1]['pid']")
ctl 1 stacks 1; expect_code 0; expect_out "^rank 1 \(pid $pid on host2\):"
on 2 kill -STOP "$pid"
wait_until grep -q 'rank 1 is stopped .*; rank 1 is on host host2' err.1 || job_fails "nobody noticed that rank 1 was stopped"
wait_until later_round 2 3 || job_fails "who stays stopped was not replaced"
ctl 2 status; expect_code 0; expect_out '^job test: '
ctl 2 list; expect_code 0; expect_out 'test +led from host host1'
ctl 2 list --json; expect_code 0; expect_out '"job_id": "test"'; expect_out '"led_by": "host1"'
ctl 1 stop; expect_code 0
wait_job 60 143; job=()

# dlaunch names a slow rank with its host, and restarts only this rank, on the same host.
begin "1 2 3" --nnodes 3 --nproc 1 --max-restarts 1 --straggler restart --straggler-window 300ms --straggler-ratio 1.5 \
  "$rounds" --steps 100000000 --step-ms 4 --slow 1
wait_until later_round 1 3 || job_fails "a slow rank was not replaced"
expect_in err.1 'rank 1 takes [0-9.]+x the time of the others.*; rank 1 is on host host2; starting it again'
ctl 1 stop; wait_job 60 143; job=()
[ "$(grep -o 'pid .*' out.3 | sort -u | wc -l)" = 1 ] || job_fails "rank 2 was started again, too"

# --chaos kills workers on any host, and the report names --chaos.
begin "1 2 3" --nnodes 3 --nproc 1 --max-restarts 1000 --chaos kill=200ms "$rounds" --steps 100000000
wait_until grep -qE 'rank [12] \(pid [0-9]+ on host host[23]\) failed first: --chaos sent it SIGKILL' err.1 ||
  job_fails "--chaos kills nobody on another host"
ctl 1 stop; wait_job 60 143; job=()

# The failure on a host with a slow link is the first one, although its message comes later. The time at
# which the host's dlaunch sees the failure counts. A busy machine may delay that dlaunch, so there are six tries.
link_delay 2 250ms
for try in 1 2 3 4 5 6; do
  rm -f go gone
  begin "1 2" --nnodes 2 --nproc 1 --grace 5s bash -c 'if [ $RANK = 1 ]; then until [ -e go ]; do read -rt 0.01 <> <(:); done; touch gone; exit 7; fi
    until [ -e gone ]; do read -rt 0.01 <> <(:); done; read -rt 0.2 <> <(:); exit 3'
  becomes "len(s['workers']) == 2 and all(w['pid'] for w in s['workers'])"
  touch go
  wait_until eval '[ "$(running_jobs)" = 0 ]' || job_fails "dlaunch does not end"
  codes=; for h in 1 2; do wait "${job[h]}"; codes+="$? "; done
  [ "$codes" != "7 7 " ] || break
done
[ "$codes" = "7 7 " ] || job_fails "exit codes $codes, not twice that of the first failure"
expect_in err.1 'rank 1 \(pid [0-9]+ on host host2\) failed first: exit code 7'
for h in 1 2 3; do nothing_left $h; done

# In a batch job of PBS, LSF, Grid Engine or Flux dlaunch needs no flags for its hosts. It takes hosts and counts from the
# scheduler, and starts the other hosts by pbsdsh, blaunch, qrsh or flux exec. These are imitations here.
source "$SOURCE/tests/hosts/batch.sh" || exit 1
hosts_up 3
batch_up 1 2 3
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "$WORD" $(hostname)'
export WORD='two  words'
# Two workers on host 1 and one on each other host. Flux has no slots, so there each host has one worker.
job_of() {
  places=('0/4 0/2 0/3 two  words host1' '1/4 1/2 0/3 two  words host1' '2/4 0/1 1/3 two  words host2'
    '3/4 0/1 2/3 two  words host3')
  case $1 in
    pbs) pbs_job host1 host1 host2 host3 ;;
    lsf) lsf_job "host1 2 host2 1 host3 1" ;;
    sge) grid_engine_job "host1 2" "host2 1" "host3 1" ;;
    flux)
      flux_job host1 host2 host3
      places=('0/3 0/1 0/3 two  words host1' '1/3 0/1 1/3 two  words host2' '2/3 0/1 2/3 two  words host3') ;;
  esac
  ranks=${#places[@]} last=$((${#places[@]} - 1))
}
placed() {
  local line
  expect_code 0
  for line in "${places[@]}"; do expect_out "^\[${line%%/*}\] $line$"; done
  [ -z "$(more_than_waits err)" ] || fail "words on stderr"
}
has() { [ "$(grep -c "$2" log 2>/dev/null)" = "$1" ]; }
cat > worker.sh <<END
$never
trap 'echo got TERM \$RANK >>log; exit 0' TERM
echo up >>log; while :; do read -rt 1 -u 9; done
END

for kind in pbs lsf sge flux; do
  job_of $kind
  run batch 1 dlaunch bash -c "$where"; placed
  [ ! -s "$BATCH_JOB/err" ] && [ ! -s "$BATCH_JOB/out" ] || fail "$kind has output of its own"
  run batch 1 dlaunch --nproc 2 hello; expect_code 0
  # Standard input goes to a rank of any host, and the rank's output comes back complete.
  seq 50000 >numbers; batch 1 dlaunch --output raw --stdin $last sh -c "[ \$RANK != $last ] || cat" <numbers >out 2>err
  cmp out numbers || fail "$kind: input or output is lost"
  # A failure sets the exit code and is reported.
  run batch 1 dlaunch bash -c "if [ \$RANK = $last ]; then exit 7; fi; exec sleep 100"
  expect_code 7; expect_err "rank $last \(pid [0-9]+ on host host3\) failed first: exit code 7"
  # The scheduler deletes the job: it signals all processes at once, and each worker gets the signal once.
  rm -f log; start_batch 1 dlaunch bash worker.sh
  wait_until has $ranks up || { cat out err >&2; fail "$kind: not all are up"; }
  signal_job TERM 1 2 3
  wait $job; [ $? = 143 ] || { cat err >&2; fail "$kind: exit code"; }
  for ((r = 0; r < ranks; ++r)); do has 1 "got TERM $r" || { cat log err >&2; fail "$kind: rank $r was not asked once"; }; done
  # SIGKILL of the script's dlaunch leaves no process of the job.
  rm -f log; start_batch 1 dlaunch bash worker.sh
  wait_until has $ranks up || fail "$kind: not all are up"
  on 1 bash -c 'kill -KILL $(ps -e -o pid=,comm= | awk "\$2 == \"dlaunch\" { print \$1; exit }")'
  wait $job
  batch_clean 1 2 3
done

# flux run starts one dlaunch on each host, and these find each other.
flux_job host1 host2 host3
flux_run() { # TASKS COMMAND…
  local h tasks=$1; shift
  for h in 1 2 3; do
    start_on $h env "${batch_env[@]}" FLUX_JOB_ID=ƒ2WpHZ5J FLUX_JOB_SIZE="$tasks" FLUX_JOB_NNODES=3 FLUX_TASK_RANK=$((h - 1)) \
      FLUX_TASK_LOCAL_ID=0 "$@" >"out.$h" 2>"err.$h" </dev/null
    task[h]=$!
  done
}
flux_ends() { # CODE
  for h in 1 2 3; do wait "${task[h]}"; code=$?; [ $code = "$1" ] || { cat err.* >&2; fail "host $h exits with $code"; }; done
}
task=(); flux_run 3 dlaunch --nproc 2 bash -c 'echo $RANK/$WORLD_SIZE $DLAUNCH_JOB_ID ${FLUX_TASK_RANK-none} $(hostname)'
flux_ends 0
for r in 0 1 2 3 4 5; do
  h=$((r / 2 + 1)); grep -qx "\[$r\] $r/6 flux-f2WpHZ5J none host$h" out.$h || { cat out.* err.* >&2; fail "rank $r of flux run"; }
done
[ -z "$(more_than_waits err.1)" ] || { cat err.1 >&2; fail "words of flux run"; }
# Flux signals each dlaunch, and each worker gets the signal once.
rm -f log; sed 's/TERM/USR1/g' worker.sh >user.sh
flux_run 3 dlaunch bash user.sh
wait_until has 3 up || { cat err.* >&2; fail "flux run: not all are up"; }
kill -USR1 "${task[@]}"; flux_ends 0
for r in 0 1 2; do has 1 "got USR1 $r" || { cat log >&2; fail "rank $r did not get one USR1"; }; done
flux_run 12 dlaunch true; flux_ends 64
grep -q 'Flux started 12 dlaunch on 3 hosts, and each host needs one' err.2 || fail "no message about several tasks"

# dlaunch refuses what cannot work, at once.
pbs_job host1 host2
run batch 1 env PBS_NODEFILE="$tmp/none" dlaunch true; expect_code 66
expect_err "^dlaunch: PBS_NODEFILE: read $tmp/none: No such file or directory; give --standalone, or --hosts$"
run batch 1 env PBS_TASKNUM=2 dlaunch true; expect_code 64
expect_err 'PBS started this dlaunch as task 2 of the job, by pbsdsh: start dlaunch once, without pbsdsh'
run batch 1 env PATH=/usr/bin:/bin "$BUILD/cli/dlaunch" true; expect_code 69
expect_err "^dlaunch: exec 'pbsdsh': no such program in PATH; --ssh-command ssh starts the hosts by ssh$"
mkdir own; cp "$BUILD/cli/dlaunch" own/dlaunch
on 2 mount -t tmpfs none "$tmp/own" || fail "no folder that host 2 lacks"
run batch 1 own/dlaunch true; expect_code 69
expect_err "host2  pbsdsh ended \(.*exit status.*\), and dlaunch on host2 has not connected: it must be at the same path there"
# Options override the scheduler.
run batch 1 dlaunch --standalone --nproc 2 sh -c 'echo $WORLD_SIZE'; expect_code 0; expect_out '^\[1\] 2$'
run batch 1 dlaunch --dry-run --ssh-command 'ssh -x' true; expect_code 0; expect_out '^workers: 1 on host2, by ssh -x$'
lsf_job "host1 2 host2"
run batch 1 dlaunch true; expect_code 64; expect_err "LSB_MCPU_HOSTS: 'host1 2 host2 ' is not HOST SLOTS HOST SLOTS"
batch_clean 1 2 3

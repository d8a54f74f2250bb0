# In a batch job of PBS or LSF dlaunch needs no flags for its hosts: it takes hosts and counts from the
# job's variables, and starts the other hosts by pbsdsh or blaunch. Both are look-alikes here.
source "$SOURCE/tests/hosts/batch.sh" || exit 1
hosts_up 3
batch_up 1 2 3
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "$WORD" $(hostname)'
export WORD='two  words'
placed() {
  local line
  expect_code 0
  for line in '0/4 0/2 0/3 two  words host1' '1/4 1/2 0/3 two  words host1' '2/4 0/1 1/3 two  words host2' \
    '3/4 0/1 2/3 two  words host3'; do
    expect_out "^\[${line%%/*}\] $line$"
  done
  [ ! -s err ] || fail "words on stderr"
}
job_of() { if [ "$1" = pbs ]; then pbs_job host1 host1 host2 host3; else lsf_job "host1 2 host2 1 host3 1"; fi; }
has() { [ "$(grep -c "$2" log 2>/dev/null)" = "$1" ]; }
cat > worker.sh <<END
$never
trap 'echo got TERM \$RANK >>log; exit 0' TERM
echo up >>log; while :; do read -rt 1 -u 9; done
END

for kind in pbs lsf; do
  job_of $kind
  run batch 1 dlaunch bash -c "$where"; placed
  [ ! -s "$BATCH_JOB/err" ] && [ ! -s "$BATCH_JOB/out" ] || fail "$kind has output of its own"
  run batch 1 dlaunch --nproc 2 hello; expect_code 0
  # Input goes to a rank of any host, and all of it comes back.
  seq 50000 >numbers; batch 1 dlaunch --output raw --stdin 3 sh -c '[ $RANK != 3 ] || cat' <numbers >out 2>err
  cmp out numbers || fail "$kind: input or output is lost"
  # A failure has its code and its report.
  run batch 1 dlaunch bash -c 'if [ $RANK = 3 ]; then exit 7; fi; exec sleep 100'
  expect_code 7; expect_err 'rank 3 \(pid [0-9]+ on host host3\) failed first: exit code 7'
  # The job is deleted: all of its processes are signalled at once, and each worker is asked once.
  rm -f log; start_batch 1 dlaunch bash worker.sh
  wait_until 20 has 4 up || { cat out err >&2; fail "$kind: not all are up"; }
  signal_job TERM 1 2 3
  wait $job; [ $? = 143 ] || { cat err >&2; fail "$kind: exit code"; }
  for r in 0 1 2 3; do has 1 "got TERM $r" || { cat log err >&2; fail "$kind: rank $r was not asked once"; }; done
  # The dlaunch of the script is killed: nothing of the job stays.
  rm -f log; start_batch 1 dlaunch bash worker.sh
  wait_until 20 has 4 up || fail "$kind: not all are up"
  on 1 bash -c 'kill -KILL $(ps -e -o pid=,comm= | awk "\$2 == \"dlaunch\" { print \$1; exit }")'
  wait $job
  batch_clean 1 2 3
done

# What cannot work is said at once.
pbs_job host1 host2
run batch 1 env PBS_NODEFILE="$tmp/none" dlaunch true; expect_code 66
expect_err "^dlaunch: PBS_NODEFILE: read $tmp/none: No such file or directory; say --standalone, or --hosts$"
run batch 1 env PBS_TASKNUM=2 dlaunch true; expect_code 64
expect_err 'PBS started this dlaunch as task 2 of the job, by pbsdsh: say dlaunch … without pbsdsh'
run batch 1 env PATH=/usr/bin:/bin "$BUILD/cli/dlaunch" true; expect_code 69
expect_err "^dlaunch: exec 'pbsdsh': no such program in PATH; --ssh-command ssh starts the hosts by ssh$"
mkdir own; cp "$BUILD/cli/dlaunch" own/dlaunch
on 2 mount -t tmpfs none "$tmp/own" || fail "no folder that host 2 lacks"
run batch 1 own/dlaunch true; expect_code 69
expect_err "host2  pbsdsh ended \(.*exit status.*\), and dlaunch on host2 has not connected: it has to be at the same path there"
# The options win.
run batch 1 dlaunch --standalone --nproc 2 sh -c 'echo $WORLD_SIZE'; expect_code 0; expect_out '^\[1\] 2$'
run batch 1 dlaunch --dry-run --ssh-command 'ssh -x' true; expect_code 0; expect_out '^workers: 1 on host2, by ssh -x$'
lsf_job "host1 2 host2"
run batch 1 dlaunch true; expect_code 64; expect_err "LSB_MCPU_HOSTS: 'host1 2 host2 ' is not HOST SLOTS HOST SLOTS"
batch_clean 1 2 3

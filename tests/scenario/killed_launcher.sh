# SIGKILL of dlaunch, of its agent, or of a worker leaves no process and no file, not even of
# grandchildren that called setsid or forked twice.
source "$SOURCE/tests/scenario/common.sh"
export TMPDIR=$tmp/private; mkdir "$TMPDIR"

# Each worker and its grandchildren write their pids.
cat > worker.sh <<'W'
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
(setsid sh -c 'echo $$ >> pids; exec sleep 1000' &)
echo $$ >> pids
exec sleep 1000
W
gone() { local p; while read -r p; do alive "$p" && return 1; done < pids; :; }
enough() { [ -f pids ] && [ "$(wc -l < pids)" -ge 9 ]; }
clean() { [ -z "$(ls -A "$TMPDIR")" ]; }

for victim in keeper agent group; do
  rm -f pids
  setsid dlaunch --nproc 3 bash worker.sh >out 2>err </dev/null & keeper=$!
  started+=("$keeper")
  wait_until enough || fail "workers did not start"
  agent=$(cat "/proc/$keeper/task/$keeper/children")
  case $victim in
    keeper) kill -9 "$keeper" ;;
    agent) kill -9 $agent ;;
    group) kill -9 -- -"$keeper" ;;  # as timeout -s KILL does
  esac
  wait_until 30 gone || fail "processes left after SIGKILL of the $victim"
  wait "$keeper"; code=$?
  [ $victim = agent ] && { expect_code 70; expect_err "dlaunch's agent was lost \(SIGKILL"; }
  wait_until 30 clean || fail "left in TMPDIR: $(ls "$TMPDIR")"
done

# The next job removes the folder of an earlier job whose processes were all killed, and keeps the
# folder of a running job.
mkdir "$TMPDIR/dlaunch-job-old"; touch "$TMPDIR/dlaunch-job-old/lock"
dlaunch --nproc 1 bash -c 'touch up; exec sleep 1000' >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until test -e up || fail "worker did not start"
folders() { (cd "$TMPDIR" && echo *); }
mine=$(folders)
case $mine in *old* | *" "*) fail "not swept: $mine" ;; esac
run dlaunch --nproc 1 true
[ "$(folders)" = "$mine" ] || fail "a living job's folder was taken away"
kill -TERM "$keeper"; wait "$keeper"

# An ordinary end also leaves no grandchild and no file.
rm -f pids
run dlaunch --nproc 1 bash -c 'setsid sh -c "echo \$\$ >> pids; exec sleep 1000" & until [ -s pids ]; do read -rt 0.01 <> <(:); done; exit 3'
expect_code 3
wait_until 30 gone || fail "a grandchild outlived the job"
clean || fail "left in TMPDIR"

# A background job of a shell that has become dlaunch is not the job's, and lives on.
rm -f pids
run bash -c 'sleep 1000 & echo $! >>pids; exec dlaunch --nproc 2 bash -c "setsid sleep 999 & exit 0"'
read -r theirs <pids; started+=("$theirs")
expect_code 0
alive "$theirs" || fail "dlaunch has killed a process that ran before it"

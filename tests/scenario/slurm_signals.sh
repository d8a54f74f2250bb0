# Slurm's signals to a job of dlaunch: each worker gets a signal once, whichever process Slurm signals. Only
# SIGTERM goes from dlaunch to the workers that still run then. dlaunch announces the end of the time before
# it comes, and no step outlives its dlaunch.
source "$SOURCE/tests/hosts/slurm.sh" || exit 1
hosts_up 4
slurm_credential_s=8 slurm_up 1 2 3 4
export HOME=$tmp/home; mkdir -p "$HOME"
cat > worker.sh <<END
$never
trap 'echo got USR1 \$RANK >>log' USR1; trap 'echo got TERM \$RANK >>log; exit 0' TERM
echo up >>log; while :; do read -rt 1 -u 9; done
END
has() { [ "$(grep -c "$2" log 2>/dev/null)" = "$1" ]; }
told() { wait_until "${3:-60}" has "$1" "$2" || { cat log out err >&2 2>/dev/null; fail "not $1 times '$2'"; }; }
asked_to_end() { for r in 0 1 2 3; do grep -q "got TERM $r" log || return 1; done; }
job_id() { on 1 squeue -h -o %i; }
no_jobs() { [ -z "$(on 1 squeue -h)" ]; }

# Slurm signals all processes of a step.
start_on 1 srun -N2 --ntasks-per-node=1 dlaunch --nproc 2 bash worker.sh >out 2>err </dev/null; step=$!
told 4 up
on 1 scancel -s USR1 "$(job_id)"; told 4 USR1
on 1 scancel "$(job_id)"
wait_until asked_to_end || { cat log out err >&2; fail "not all were asked to end"; }
wait $step; [ $? = 143 ] || fail "the step's exit code"
has 4 USR1 || fail "USR1 came more than once"

# A batch script: Slurm signals the steps only, or the script only, also with sbatch's --signal.
rm -f log; cat > batch.sh <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --output=out --error=err
exec dlaunch bash worker.sh
END
on 1 sbatch batch.sh >/dev/null; told 4 up
on 1 scancel -s USR1 "$(job_id)"; told 4 USR1
on 1 scancel -b -s USR1 "$(job_id)"; told 8 USR1
on 1 scancel "$(job_id)"; wait_until no_jobs || fail "the job does not end"
asked_to_end || { cat log >&2; fail "not all were asked to end"; }
has 8 USR1 || fail "USR1 came more than once"

# The time limit of Slurm.
rm -f log; sed -i 's/bash worker/--end-signal USR1@45 bash worker/' batch.sh
on 1 sbatch --time=1 batch.sh >/dev/null; told 4 USR1
grep -q "the job's time is nearly up: SIGUSR1" err || fail "nothing was said about the time"
on 1 scancel "$(job_id)"; wait_until no_jobs || fail "the job does not end"

# Slurm requeues the job. Processes of the first run do not join the second. The second run continues with the
# rounds of the journal, and with the remaining restarts: one of two.
rm -f log; cat > again.sh <<'END'
#!/bin/bash
#SBATCH -N2 --requeue --open-mode=append --output=out --error=err
srun --ntasks-per-node=1 dlaunch --max-restarts 2 --journal "$PWD/journal" bash -c '
  echo $RANK up $DLAUNCH_JOB_ID in $DLAUNCH_ROUND >>log
  [ $RANK = 1 ] || exec sleep 100
  [ $DLAUNCH_ROUND = 1 ] || [ "$SLURM_RESTART_COUNT" = 1 ] || exec sleep 100; exit 5'
END
on 1 sbatch again.sh >/dev/null; told 2 'in 2'
id=$(job_id); on 1 scontrol requeue "$id"
wait_until has 2 "^1 up slurm-$id.0-r1" || { on 1 scontrol show job "$id" >&2; cat log out err >&2; fail "not started again"; }
wait_until no_jobs || fail "the job does not end"
grep -q "Slurm has started job $id again: going on after round [23], 1 of 2 restarts used" err || fail "not told"
grep -q "^1 up slurm-$id.0-r1 in [34]$" log || { cat log >&2; fail "the rounds are counted from the start again"; }
grep -q 'all 2 restarts (--max-restarts) are used' err || { cat err >&2; fail "the restarts are not counted on"; }
has 2 "^1 up slurm-$id.0-r1" || fail "a restart too many"
[ ! -e journal ] || fail "the journal is left"

# The dlaunch in salloc's shell is killed: its steps end, although the allocation lives.
rm -f log; cat > killed.sh <<'END'
dlaunch --nproc 2 bash worker.sh & launcher=$!
until [ "$(grep -c up log 2>/dev/null)" = 4 ]; do read -rt 0.1 <> <(:); done
kill -9 $launcher
for i in {1..600}; do [ -n "$(squeue -h -s)" ] || exit 0; read -rt 0.1 <> <(:); done
exit 1
END
run on 1 salloc -Q -N2 -w host[3-4] bash killed.sh; expect_code 0

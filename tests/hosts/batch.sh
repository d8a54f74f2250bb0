# Test hosts like those of the schedulers PBS, LSF, Grid Engine and Flux: sourced instead of
# hosts.sh. batch_host.py replaces their daemons on each host, and pbsdsh, blaunch, qrsh and flux.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1

# batch_up H…: their daemons on these hosts, and a folder for jobs, with the programs in PATH.
batch_up() {
  local h name
  export BATCH_JOB=$tmp/job HOME=$tmp/home; mkdir -p "$BATCH_JOB" "$HOME" batch
  for name in pbsdsh blaunch qrsh flux; do
    cp "$SOURCE/tests/hosts/batch_host.py" "batch/$name" && chmod +x "batch/$name" || fail "no $name"
  done
  PATH=$tmp/batch:$PATH
  for h in "$@"; do
    start_on "$h" python3 "$SOURCE/tests/hosts/batch_host.py" serve </dev/null 2>"batch/served.$h"; disown
  done
  for h in "$@"; do
    wait_until on "$h" bash -c 'exec 3<>/dev/tcp/localhost/15002' 2>/dev/null ||
      fail "no daemon on host $h: $(cat "batch/served.$h")"
  done
}
# pbs_job HOST…: the environment that PBS gives to the script of a job with these hosts, one name
# for each process.
pbs_job() {
  rm -f "$BATCH_JOB"/*
  printf '%s\n' "$@" > "$BATCH_JOB/nodes"
  batch_env=(PBS_ENVIRONMENT=PBS_BATCH PBS_JOBID=7.host1 PBS_JOBCOOKIE=00000000207DB83E000000005275737E
    PBS_NODEFILE="$BATCH_JOB/nodes" PBS_O_WORKDIR="$tmp" NCPUS=1 OMP_NUM_THREADS=1)
  printf '%s\n' "${batch_env[@]}" "HOME=$HOME" PATH=/usr/bin:/bin USER=root SHELL=/bin/sh > "$BATCH_JOB/env"
  batch_env+=(PBS_TASKNUM=1 PBS_NODENUM=0 PBS_MOMPORT=15003)
}
# lsf_job "HOST SLOTS …": the same for LSF.
lsf_job() {
  rm -f "$BATCH_JOB"/*
  batch_env=(LSB_JOBID=8 LSB_BATCH_JID=8 LSB_MCPU_HOSTS="$1 " LSB_QUEUE=normal)
}
# grid_engine_job "HOST SLOTS"…: the same for Grid Engine.
grid_engine_job() {
  rm -f "$BATCH_JOB"/*
  printf '%s all.q UNDEFINED\n' "$@" > "$BATCH_JOB/pe"
  batch_env=(SGE_ROOT=/var/lib/gridengine JOB_ID=9 PE=mpi PE_HOSTFILE="$BATCH_JOB/pe" NSLOTS=4 NHOSTS=3)
  printf '%s\n' "${batch_env[@]}" "HOME=$HOME" PATH=/usr/bin:/bin USER=root SHELL=/bin/sh > "$BATCH_JOB/env"
}
# flux_job HOST…: the environment that Flux gives to the script of flux batch.
flux_job() {
  rm -f "$BATCH_JOB"/*
  printf '%s\n' "$@" > "$BATCH_JOB/nodes"
  batch_env=(FLUX_URI=local:///run/flux/host1)
}
# batch H COMMAND…: on host H, with the job's environment; for `run` and `start_on`.
batch() { local h=$1; shift; on "$h" env "${batch_env[@]}" "$@"; }
start_batch() { local h=$1; shift; start_on "$h" env "${batch_env[@]}" "$@" >out 2>err </dev/null; job=$!; }
# Like qdel and bkill: signals all processes of the job's script on host H, and the tasks elsewhere.
signal_job() { # SIGNAL H OTHERS…
  local signal=$1 h=$2; shift 2
  on "$h" bash -c 'kill -'"$signal"' $(ps -e -o pid=,comm= | awk "\$2 ~ /^(dlaunch|pbsdsh|blaunch|qrsh|flux)/ { print \$1 }")'
  for h in "$@"; do
    on "$h" bash -c 'kill -'"$signal"' $(cat "$1") 2>/dev/null; :' bash "$BATCH_JOB/tasks.host$h"
  done
}
# These hosts have no process of a job, except the daemon's own.
batch_clean() {
  local h
  for h in "$@"; do
    wait_until eval "[ -z \"\$(on $h ps -e -o comm= | grep -E '^(dlaunch|sleep|pbsdsh|blaunch|qrsh|flux)')\" ]" ||
      { on "$h" ps -ef >&2; fail "processes are left on host $h"; }
    [ -z "$(ls -A "$(host_dir "$h")/tmp")" ] || fail "files are left on host $h: $(ls -A "$(host_dir "$h")/tmp")"
  done
}

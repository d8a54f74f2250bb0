# Jobs over test hosts, started by hand on each: sourced instead of hosts.sh.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > secret)
rdzv=(--rdzv tcp://host1:29400 --secret-file "$PWD/secret" --job-id test)

# start_job "HOSTS" ARGS…: dlaunch on these hosts, in that order; its output is in out.HOST and
# err.HOST, its process in ${job[HOST]}.
start_job() {
  local hosts=$1 h; shift
  rm -f out.* err.* enough
  job=()
  for h in $hosts; do start_dlaunch "$h" "$@"; done
}
start_dlaunch() {
  local h=$1; shift
  start_on "$h" dlaunch "${rdzv[@]}" "$@" >>"out.$h" 2>>"err.$h" </dev/null
  job[h]=$!
}
# wait_host SECONDS HOST CODE: dlaunch on this host must end within this time, with that code.
wait_host() {
  local code
  wait_until "$1" eval "! alive ${job[$2]} 2>/dev/null" || job_fails "dlaunch of host $2 does not end"
  wait "${job[$2]}"; code=$?
  [ "$code" = "$3" ] || job_fails "dlaunch of host $2 exits with $code, not $3"
}
running_jobs() {
  local pid n=0
  for pid in "${job[@]}"; do alive "$pid" 2>/dev/null && n=$((n + 1)); done
  echo $n
}
wait_job() { local h; for h in "${!job[@]}"; do wait_host "$1" "$h" "$2"; done; }
# later_round R SIZE: rounds_worker was in a round after R, of that size, with all its ranks.
later_round() {
  local round; round=$(cat out.* | sed -nE "s/.*in round ([0-9]+) as [0-9]+ of $2,.*/\1/p" | sort -n | tail -1)
  [ "${round:-0}" -gt "$1" ] && [ "$(cat out.* | grep -c "in round $round as [0-9]* of $2,")" = "$2" ]
}
# The last round that rounds_worker was in.
last_round() { cat out.* | sed -nE 's/.*in round ([0-9]+) .*/\1/p' | sort -n | tail -1; }
# end_steps SECONDS RANKS: for rounds_worker with --until enough: all end by then after the same
# step, and all of dlaunch with 0.
end_steps() {
  touch enough; wait_job "$1" 0
  [ "$(cat out.* | grep -c ' done ')" = "$2" ] && [ "$(cat out.* | grep -o ' done .*' | sort -u | wc -l)" = 1 ] ||
    job_fails "not all steps on $2 ranks"
}
job_fails() { tail -n 15 err.* out.* >&2; fail "$*"; }
# Host H has no process of a job.
nothing_left() {
  wait_until 30 eval "[ \"\$(on $1 bash -c 'ls /proc | grep -cE ^[0-9]+$')\" -le 4 ]" ||
    { on "$1" ps -ef >&2; fail "processes are left on host $1"; }
}

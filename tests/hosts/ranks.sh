# Ranks on test hosts without the launcher, for scenarios: sourced instead of hosts.sh.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
master=host1  # MASTER_ADDR: rank 0 is on host 1
export DLAUNCH_OP_TIMEOUT=2s DLAUNCH_INIT_TIMEOUT=60s MASTER_PORT=29500

# start_ranks RANKS HOSTS COMMAND…: spreads the ranks over hosts 1 to HOSTS, neighbours together. Their
# output is in out.RANK and err.RANK, their processes in $rank_pids. With $host_of, an arithmetic expression of r
# for the host of rank r, they go elsewhere.
start_ranks() {
  local ranks=$1 hosts=$2 r; shift 2
  rm -f out.* err.*
  rank_pids=()
  for ((r = 0; r < ranks; ++r)); do
    RANK=$r WORLD_SIZE=$ranks MASTER_ADDR=$master start_on $((${host_of:-r * hosts / ranks + 1})) "$@" \
      >out.$r 2>err.$r </dev/null
    rank_pids+=($!)
  done
}
running() {
  local p
  for p in "${rank_pids[@]}"; do alive "$p" 2>/dev/null && return; done
  return 1
}
ranks_fail() { tail -n 5 err.* out.0 >&2; fail "$*"; }
# ranks_end SECONDS: the ranks must end within this time. Sets $codes to their exit codes, $ms to the time.
ranks_end() {
  local p t0; t0=$(now_ms)
  wait_until "$1" eval '! running' || ranks_fail "ranks hang"
  ms=$(($(now_ms) - t0))
  codes=
  for p in "${rank_pids[@]}"; do wait "$p"; codes+="$? "; done 2>/dev/null
}
# ranks_right SECONDS: the ranks must end within this time, and all their results must be right.
ranks_right() {
  ranks_end "$1"
  [ -z "${codes//0 /}" ] || ranks_fail "exit codes $codes"
  grep -q 'Out of bounds values : 0 OK' out.0 || ranks_fail "wrong results"
}
# ranks_told LIST REGEX: each of these ranks ended with exit code 1 and an error that fits.
ranks_told() { ranks_say "$@" || ranks_fail "$unsaid"; }
# ranks_say LIST REGEX: the same without a failure of the scenario; sets $unsaid to the reason.
ranks_say() {
  local r all=($codes)
  for r in $1; do
    unsaid="rank $r: exit code ${all[r]}"; [ "${all[r]}" = 1 ] || return 1
    unsaid="rank $r does not say: $2"; grep -qE -- "$2" err.$r || return 1
  done
}

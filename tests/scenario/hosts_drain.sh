# dlaunchctl drain takes a host out of an elastic job in one planned round, which costs no restart, and the
# dlaunch there ends; undrain lets it come back. Both work with hosts that ssh starts and with hosts started
# by hand.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 4
sshd_up 1 2 3
worker=("$BUILD/tests/support/elastic_worker" --steps 1000000000 --step-ms 5 --until "$tmp/stop" --log "$tmp/log" --size 2000 --shard 1003)
export DLAUNCH_HOST_TIMEOUT=15s  # else a slow machine may lose a host, which begins another round
ctl() { on 1 "$BUILD/cli/ctl/dlaunchctl" "$@" >ctl.out 2>&1; }
order() { ctl "$@" || fail "dlaunchctl $*: $(cat ctl.out)"; }
no() { ctl "${@:2}" && fail "dlaunchctl ${*:2} is done: $(cat ctl.out)"; grep -qE "$1" ctl.out || fail "no reason for it: $(cat ctl.out)"; }
status_has() { ctl status && grep -qE "$1" ctl.out; }
# in_round ROUND SIZE: all ranks are in that round, and there is no later round.
in_round() {
  [ "$(sed -n 's/^round \([0-9]*\) .*/\1/p' "$tmp/log" 2>/dev/null | sort -n | tail -1)" = "$1" ] &&
    [ "$(grep -c "^round $1 .* size $2 " "$tmp/log")" = "$2" ]
}

# Hosts started by ssh. dlaunch does not start a drained host again, but would start a lost one again.
start_launch 1 --hosts 'host[1-3]:2' --nnodes 2:3 --max-restarts 3 "${worker[@]}"
wait_until in_round 1 6 || fail "no first round: $(cat err)"
no 'there is no host nosuch in this job: host1, host2, host3' drain nosuch
order drain host2
wait_until in_round 2 4 || fail "no round without host 2: $(cat log err)"
wait_until eval '! on 2 pgrep -x dlaunch >/dev/null' || fail "its dlaunch does not end"
wait_until status_has '^host host2: drained$' || fail "the status does not tell: $(cat ctl.out)"
status_has '^restarts: 0 used' || fail "it cost a restart: $(cat ctl.out)"
no 'cannot continue with fewer than 4 workers' drain host3
no 'is drained already' drain host2
order undrain host2
wait_until in_round 3 6 || fail "host 2 is not back: $(cat err)"
order drain host1  # host 1 leads, and continues to lead
wait_until in_round 4 4 || fail "no round without host 1: $(cat log err)"
wait_until status_has '^host host1: drained$' || fail "the status does not tell: $(cat ctl.out)"
order undrain host1
wait_until in_round 5 6 || fail "no round with host 1 again: $(cat log err)"
status_has '^restarts: 0 used' || fail "it cost a restart: $(cat ctl.out)"
grep -q 'lost host' err && fail "a host was lost: $(cat err)"
touch stop; wait_launch 60; expect_code 0; all_clean 1 2 3
rm -f stop log

# Hosts started by hand. The job refuses the drained host until undrain.
start_job "1 2 3" --nnodes 2:3 --nproc 1 --max-restarts 1 "${worker[@]}"
wait_until in_round 1 3 || job_fails "no first round"
order drain host3
wait_until in_round 2 2 || job_fails "no round without host 3"
wait_host 60 3 0
grep -q 'this host is drained: the job continues without it' err.3 || job_fails "host 3 is not told why"
start_dlaunch 3 --nnodes 2:3 --nproc 1 --max-restarts 1 "${worker[@]}"; wait_host 60 3 69
grep -q "refused this host: host host3 is drained: 'dlaunchctl undrain host3' on host host1" err.3 || job_fails "no reason"
# Another host takes the number of the drained host, which stays drained.
start_dlaunch 4 --nnodes 2:3 --nproc 1 --max-restarts 1 "${worker[@]}"
wait_until in_round 3 3 || job_fails "host 4 is not taken in"
status_has '^host host3: drained$' || fail "the status does not tell: $(cat ctl.out)"
order undrain host3
no 'host host3 is not drained|there is no host host3' undrain host3
order drain host4
wait_until in_round 4 2 || job_fails "no round without host 4"
wait_host 60 4 0
start_dlaunch 3 --nnodes 2:3 --nproc 1 --max-restarts 1 "${worker[@]}"
wait_until in_round 5 3 || job_fails "host 3 is not taken back"
status_has '^restarts: 0 used' || fail "it cost a restart: $(cat ctl.out)"
touch stop; wait_job 60 0

# A job that is not elastic has no round at which a host could leave, and dlaunchctl says so.
rm -f stop
start_job "1 2" --nnodes 2 bash -c 'touch "$1/on.$RANK"; until [ -e "$1/stop" ]; do sleep 0.1; done' _ "$tmp"
wait_until eval '[ -e on.0 ] && [ -e on.1 ]' || job_fails "no start"
no 'does not take part in elastic rounds' drain host2
touch stop; wait_job 60 0

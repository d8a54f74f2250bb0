# Both ranks of one of two hosts come late to each collective, as on a host that is busy with other work. dlaunch names the
# host with the sum of what its ranks cost: in top, in the ledger and when the job ends.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
export PATH="$BUILD/cli/ctl:$PATH"
hosts_up 2
start_job "1 2" --nnodes 2 --nproc 2 --error-file report.json sh -c \
  'ms=10; [ "$(uname -n)" = host1 ] || ms=60; exec "$0" --until enough --step-ms $ms' "$BUILD/tests/support/rounds_worker"
wait_until later_round 0 4 || job_fails "no round"
top_says() { on 1 dlaunchctl top --once >ctl.out 2>&1 && grep -qE "$1" ctl.out; }
wait_until top_says '^goodput [0-9.]+ %; host2 cost most, [1-9][0-9]\.. %: waits for the busy host$' ||
  job_fails "top does not name the host: $(cat ctl.out)"
ledger_says() { on 1 dlaunchctl goodput >ctl.out 2>&1 && grep -qE "$1" ctl.out; }
wait_until ledger_says '^goodput .* in (1[1-9]|[2-9][0-9])(\.[0-9]+)? s' || job_fails "no ledger: $(cat ctl.out)"
ledger_says '^  host2 cost [1-9][0-9]\..* %: .*waits for the busy host [1-9][0-9]' || job_fails "no busy host: $(cat ctl.out)"
grep -q '^  rank [23] ' ctl.out && job_fails "the ledger also names the ranks of the host: $(cat ctl.out)"
end_steps 60 4
tail -n 1 err.1 | grep -qE '^dlaunch: host2 cost [0-9.]+ %: .*busy host' || job_fails "the last line"
python3 "$SOURCE/tests/scenario/goodput_check.py" report.json "g['costs_most'].startswith('host2 cost ')" \
  "sum(c['waiting_s'].get('host', 0) for c in g['costs'] if c['host'] == 'host2') > 0.1 * total" >check.out 2>&1 || fail "$(cat check.out)"
[ -z "${VERBOSE:-}" ] || tail -n 3 err.1 ctl.out

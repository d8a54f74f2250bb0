# A leader that is elected after the one that drained a host was lost still keeps that host out, and
# undrain lets it come back.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 4
rounds=$BUILD/tests/support/rounds_worker
rdzv=(--secret-file "$PWD/secret" --job-id test)
leader() { grep -oE '10\.77\.0\.[0-9]+:[0-9]+' meet/dlaunch-leader-test | tail -1 | sed -E 's/.*\.([0-9]+):.*/\1/'; }
args=(--rdzv "file://$PWD/meet" --nnodes 2:4 --nproc 1 --max-restarts 5 "$rounds" --until enough --step-ms 10)
start_job "1" "${args[@]}"
wait_until grep -qs . meet/dlaunch-leader-test || job_fails "nobody leads"
for h in 2 3 4; do start_dlaunch $h "${args[@]}"; done
wait_until later_round 0 4 || job_fails "no round of four"
on 1 "$BUILD/cli/ctl/dlaunchctl" drain host4 >ctl.out 2>&1 || job_fails "drain: $(cat ctl.out)"
wait_until later_round 1 3 || job_fails "no round without host 4"
wait_host 60 4 0
before=$(last_round); host_kill 1; wait "${job[1]}"; unset "job[1]"
wait_until later_round "$before" 2 || job_fails "no round under another leader"
leads=$(leader); [ "$leads" != 1 ] || job_fails "the lost host leads"

start_dlaunch 4 "${args[@]}"; wait_host 60 4 69
grep -q "refused this host: host host4 is drained: 'dlaunchctl undrain host4' on host host$leads" err.4 || job_fails "host 4 is not kept out"
on "$leads" "$BUILD/cli/ctl/dlaunchctl" status >ctl.out 2>&1
grep -q '^host host4: drained$' ctl.out || job_fails "the status does not tell: $(cat ctl.out)"
on "$leads" "$BUILD/cli/ctl/dlaunchctl" undrain host4 >ctl.out 2>&1 || job_fails "undrain: $(cat ctl.out)"
before=$(last_round); start_dlaunch 4 "${args[@]}"
wait_until later_round "$before" 3 || job_fails "host 4 is not taken back"
end_steps 60 3

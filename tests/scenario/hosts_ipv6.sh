# Several hosts without IPv4, also without its loopback.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 3
rounds=$BUILD/tests/support/rounds_worker
for h in 1 2 3; do
  on $h ip -4 addr flush dev lo && on $h ip -4 addr flush dev eth0 || fail "host $h keeps IPv4"
  on $h ip -4 addr show | grep inet && fail "host $h has IPv4"
done
rdzv=(--rdzv "tcp://[$(host_addr6 1)]:29400" --secret-file "$PWD/secret" --job-id test)

start_job "2 1" --nnodes 2 --nproc 2 bash -c 'echo $RANK at $MASTER_ADDR'
wait_job 60 0
[ "$(cat out.1 out.2 | grep -cE '^\[([0-3])\] \1 at fd77::1$')" = 4 ] || job_fails "MASTER_ADDR"
# Collectives, and an elastic job that loses a host.
start_job "1 2 3" --nnodes 2:3 --max-restarts 3 "$rounds" --until enough --step-ms 10
wait_until later_round 0 3 || job_fails "no first round"
host_kill 3; wait "${job[3]}"; unset "job[3]"
wait_until later_round 1 2 || job_fails "no round without host 3"
end_steps 60 2

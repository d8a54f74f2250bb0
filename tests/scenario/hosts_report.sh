# The JSON of jobs on several hosts, and of dlaunch doctor there, matches the published schemas.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
source "$SOURCE/tests/scenario/valid_json.sh" || exit 1
hosts_up 3
rounds=$BUILD/tests/support/rounds_worker

# The first failure is on another host. The leader's report has the error of that host's clock, and the stopped ranks.
start_job "1 2" --nnodes 2 --nproc 2 --error-file report.json bash -c \
  'if [ $RANK = 3 ]; then until [ -e up.0 -a -e up.1 -a -e up.2 ]; do sleep 0.05; done; echo why >&2; exit 7; fi
   touch up.$RANK; exec sleep 1000'
wait_job 60 7
valid report.schema.json report.json root_cause clock_error_s stderr_tail others
# A host is lost, and the others cannot continue.
rm -f report.json
start_job "1 2" --nnodes 2 --error-file report.json "$rounds" --until enough --step-ms 10
wait_until later_round 0 2 || job_fails "no round"
host_kill 2; wait "${job[2]}"; unset "job[2]"
wait_job 60 69
valid report.schema.json report.json lost_host
# SIGTERM ends an elastic job that has lost a host.
rm -f report.json; hosts_down; hosts_up 3
start_job "1 2" --nnodes 1:2 --max-restarts 3 --error-file report.json "$rounds" --until enough --step-ms 10
wait_until later_round 0 2 || job_fails "no round of the elastic job"
host_kill 2; wait "${job[2]}"; unset "job[2]"
wait_until later_round 1 1 || job_fails "no round with one host"
kill -TERM "${job[1]}"; wait_job 60 143
valid report.schema.json report.json signal_received

sshd_up 1 3
run on 1 dlaunch doctor --json --ssh-command "$ssh_command" --hosts host1,host3
valid doctor.schema.json out hosts pairs round_trip_s

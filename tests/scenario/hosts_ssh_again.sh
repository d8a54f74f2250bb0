# Lost hosts of a job, started again by ssh when they are back. Hosts that join and leave as
# --host-discovery-script lists them. A host that fails repeatedly is not started again at once, and a
# host that is not healthy gets no workers.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 4
sshd_up 1 2 3 4
rounds=("$BUILD/tests/support/rounds_worker" --steps 100000 --step-ms 20)
# round_of LATER SIZE: some round after LATER had this size, with all its ranks.
round_of() { # LATER SIZE
  round=$(sed -nE "s/.*in round ([0-9]+) as [0-9]+ of $2,.*/\1/p" out | sort -n | tail -1)
  [ "${round:-0}" -gt "$1" ] && [ "$(grep -c "in round $round as [0-9]* of $2," out)" = "$2" ]
}
status() { on 1 "$BUILD/cli/ctl/dlaunchctl" status; }
stop_it() { kill -INT $launcher; wait_launch 60; expect_code 130; all_clean "$@"; }

# A host is lost for a while. The others continue, and take it back when it is there and healthy.
start_launch 1 --hosts 'host[1-3]' --nnodes 2:3 --max-restarts 9 \
  --health-check "hostname >> asked; cat ill 2>/dev/null && exit 3; true" "${rounds[@]}"
wait_until round_of 0 3 || fail "no first round"
host_kill 3
wait_until round_of 1 2 || fail "no round without host 3"
before=$round
wait_until eval "status | grep -qE '^host host3: started again in .*: ssh: connect to host host3 port 22'" ||
  { status; fail "no word of host 3 in the status"; }
expect_err 'warning: host host3: its ssh ended with exit code 255; starting it again in '
[ ! -e asked ] || fail "hosts were tested at the start"
# dlaunch's own test fails, because /dev/shm is full. Then the user's test fails, which runs after it.
left_out() { grep -q "host host3 failed its health check and gets no workers: $1; dlaunch tests it again in" err; }
on 3 mount -t tmpfs -o size=64k small /dev/shm || fail "no small /dev/shm"
printf 'looking\nthe disk is worn\n' > ill
sshd_up 3
wait_until left_out '.*/dev/shm: No space left on device' || fail "no room in /dev/shm is not told"
[ ! -e asked ] || fail "the user's test came before ours"
on 3 umount /dev/shm || fail "/dev/shm stays small"
wait_until left_out '--health-check: the disk is worn' || fail "--health-check fails and is not told"
wait_until eval "status | grep -qE '^host host3: not healthy, .*: --health-check: the disk is worn'" ||
  { status; fail "no word of it in the status"; }
grep -q 'host host3 has joined' err && fail "it is in the job all the same"
round_of "$before" 2 && fail "it cost the others a round"
rm ill
wait_until round_of "$before" 3 || fail "host 3 is not taken back"
[ "$(sort -u asked)" = host3 ] || fail "tested were: $(sort -u asked)"
[ "$(grep -c 'host host3 failed its health check and gets no workers' err)" = 2 ] || fail "told more than once for each reason"
expect_err 'warning: host host3 has joined'

# A host's ssh is lost, and the host does not notice. The next dlaunch on this host takes the place, and
# the first one ends. A lost dlaunch that wakes after the next one has joined also ends.
session_of() { on "$1" bash -c 'pgrep -P "$(pgrep -o sshd)"'; }
lose_ssh() { on 1 bash -c "kill -KILL \$(pgrep -f '^ssh .* $1 ')"; }
one_worker_on() { [ "$(on "$1" pgrep -c rounds_worker)" = 1 ]; }
session=$(session_of 2)
on 2 kill -STOP $session
before=$round
lose_ssh host2
wait_until round_of "$before" 3 || fail "host 2 is not started again"
expect_err 'refused a host at 10.77.0.2:.*a later connection of host host2 has taken its place'
wait_until one_worker_on 2 || fail "workers of the first are left on host 2"
on 2 kill -KILL $session
session=$(session_of 3) first=$(on 3 pgrep -x dlaunch)
on 3 kill -STOP $session $first
before=$round
wait_until round_of "$before" 2 || fail "host 3 stands and is not lost"
before=$round
lose_ssh host3
wait_until round_of "$before" 3 || fail "host 3 is not started again"
on 3 kill -CONT $first
wait_until grep -q 'refused a host at 10.77.0.3:.*what started this dlaunch on host host3 has ended' err ||
  fail "the first on host 3 is taken back"
wait_until one_worker_on 3 || fail "workers of the first are left on host 3"
on 3 kill -KILL $session
stop_it 1 2 3

# The list changes: a host leaves, and another takes its place. The first host keeps no process.
printf 'host%s:2\n' 2 3 4 > list
start_launch 1 --host-discovery-script "cat $PWD/list" --nnodes 2:3 "${rounds[@]}"
wait_until round_of 0 3 || fail "no round of the hosts that are listed"
before=$round
echo 'exit 3' > new && mv new list  # lists no hosts, so the job keeps its hosts
wait_until grep -q "the hosts stay as they are: .* printed something other than hosts" err || fail "not told"
printf 'host3\nhost4\n' > new && mv new list
wait_until round_of "$before" 2 || fail "host 2 does not leave"
wait_until grep -q 'host host2 has left' err || fail "host 2 is not let go"
before=$round
all_clean 2
echo 'host1:7' >> list
wait_until round_of "$before" 3 || fail "host 1 is not taken in"
expect_err 'warning: host host1 is listed; starting it'
grep -q 'lost host' err && fail "a host was lost"
stop_it 1 2 3 4

# The second login to a host hangs, while the agent of the first login, whose ssh is lost, is still in
# the job. The job ends nevertheless.
cat > slow <<'END'
#!/bin/bash
case "$*" in *" host2 "*) [ ! -e second ] || exec sleep 1003; : > second ;; esac
exec "$@"
END
chmod +x slow
ssh_command="$PWD/slow $ssh_command" start_launch 1 --hosts 'host[1-3]' --nnodes 2:3 --max-restarts 9 \
  bash -c ': > here.$RANK; while [ ! -e go ]; do read -rt 0.05 <> <(:); done'
wait_until test -e here.0 -a -e here.1 -a -e here.2 || fail "they do not begin"
session=$(session_of 2)
on 2 kill -STOP $session
lose_ssh host2
wait_until on 1 pgrep -f 'sleep 1003' >/dev/null || fail "no second login"
: > go
wait_launch 60; expect_code 0
on 2 kill -KILL $session
all_clean 1 2 3

# At the end dlaunch waits for late output, but not for an ssh that never ends, and not for a process
# that keeps the output of an ended ssh open.
cat > late <<'END'
#!/bin/bash
case "$*" in
  *" host2 "*) "$@" 2> >(read -rt 3 <> <(:); exec cat >&2); wait $!; exec sleep 1004 ;;
  *" host3 "*) sleep 1005 & exec "$@" ;;
esac
exec "$@"
END
chmod +x late
run on 1 dlaunch --ssh-command "$PWD/late $ssh_command" --hosts 'host[1-3]' bash -c 'seq 5000; seq 5000 >&2'
expect_code 0; expect_under 120000
for r in 0 1 2; do
  [ "$(grep -c "^\[$r\] " out)" = 5000 ] && [ "$(grep -c "^\[$r\] " err)" = 5000 ] || fail "output of rank $r is lost"
done
expect_err "the .*/late of host host2 does not end and shows nothing; ending it"
expect_err "the .*/late of host host3 has left its output open and shows nothing; not waiting for more"
[ "$(more_than_waits err | grep -cv '^\[')" = 2 ] || fail "other lines as well"
on 1 pgrep -f 'sleep 100[45]' >/dev/null && fail "an ssh that hangs is left, or what it started"
all_clean 1 2 3

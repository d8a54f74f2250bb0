# Failures of a start by ssh: dlaunch reports them for all hosts at once, before any worker starts.
# Whatever process is lost, no host keeps a process.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 4
sshd_up 1 2 3
only_here() { [ "$(find . -name 'ran*' | wc -l)" = 0 ] || fail "a worker ran"; }
workers_on() { on "$1" bash -c 'cat /proc/[0-9]*/comm 2>/dev/null' | grep -cx sleep; }
gone_from() { wait_until 30 eval "[ \"\$(workers_on $1)\" = 0 ]" || fail "workers are left on host $1"; }

# One line for each host: no sshd, no such name, no folder, no program.
mkdir hidden && cp "$(type -P touch)" hidden/prog
on 2 mount -t tmpfs none "$PWD/hidden"
launch 1 --hosts 'host[1-4],nohost' ./hidden/prog ran; expect_code 127; only_here
expect_err "^dlaunch: cannot start on 3 of 5 hosts:"
expect_err "^dlaunch:   host2   exec './hidden/prog': No such file or directory"
expect_err '^dlaunch:   host4   ssh: connect to host host4 port 22: Connection refused'
expect_err '^dlaunch:   nohost  ssh: Could not resolve hostname nohost: '
[ "$(more_than_waits err | wc -l)" = 4 ] || fail "more than the table"
mkdir -p parent/child && on 2 mount -t tmpfs none "$PWD/parent"
cd parent/child && launch 1 --hosts host1,host2,host3 touch ran
mv out err "$tmp" && cd "$tmp"; expect_code 71; only_here; expect_err "host2  chdir to '.*parent/child': No such file"
launch 1 --hosts host3,host1 --chdir "$PWD/hidden/deep/er" true; expect_code 71
expect_err "host1  chdir to '.*deep/er'" ; expect_err "host3  chdir to"
launch 1 --hosts host1,host3 nonesuch; expect_code 127; expect_err "host3  exec 'nonesuch': no such program in PATH"
launch 1 --hosts host1,host3 --log-dir /proc/x true; expect_code 73
# A host lacks the interface: dlaunch says which addresses it has, before any worker starts.
ip -n host2 addr add 192.0.2.7/32 dev lo
launch 1 --hosts host1,host2 --interface 192.0.2.0/24 touch ran; expect_code 64; only_here
expect_err "^dlaunch: host host1: --interface: '192.0.2.0/24' fits no address of this host; it has .*eth0 10.77.0."
launch 1 --hosts host2,host3 --rdzv tcp://host1:0 --interface 192.0.2.7 touch ran; expect_code 64; only_here
expect_err "^dlaunch: cannot start on 1 of 2 hosts:"
expect_err "^dlaunch:   host3  --interface: '192.0.2.7' fits no address of this host; it has .*eth0 10.77.0."
# The messages of ssh: another key, an unknown host key, no ssh at all.
ssh-keygen -q -t ed25519 -N '' -f other
sed "s#keys/user#other#" ssh_config > other_config
run on 1 dlaunch --ssh-command "ssh -F $PWD/other_config" --hosts host1,host2 touch ran; expect_code 69
expect_err 'host2  .*Permission denied'; only_here
run on 1 dlaunch --ssh-command "ssh -F $PWD/ssh_config -o UserKnownHostsFile=/dev/null" --hosts host1,host2 touch ran
expect_code 69; expect_err 'host2  Host key verification failed'; only_here
run on 1 dlaunch --ssh-command nonesuch --hosts host1,host2 touch ran; expect_code 69; only_here
expect_err "^dlaunch: exec 'nonesuch': no such program in PATH"
all_clean 1 2 3

# ^C, and SIGKILL of the launcher, of its ssh, and of its host.
start() {
  start_launch 1 --hosts 'host[1-3]:2' "$@" sleep 1000
  wait_until eval '[ "$(workers_on 2)$(workers_on 3)" = 22 ]' || fail "no start"
}
start; kill -INT $launcher; wait_launch 60; expect_code 130; all_clean 1 2 3
start; on 1 bash -c 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = dlaunch ] && kill -9 ${p#/proc/}; done'
wait_launch 60; gone_from 1; gone_from 2; gone_from 3
all_clean 2 3; rm -rf "$(host_dir 1)"/tmp/*
start --grace 1s
on 1 bash -c 'for p in /proc/[0-9]*; do grep -qsz host3 $p/cmdline && [ "$(cat $p/comm)" = ssh ] && kill -9 ${p#/proc/}; done'
wait_launch 60; expect_code 69; expect_err "host host3: its ssh was ended by SIGKILL"
expect_err "host host3 was lost with ranks 4-5 "; all_clean 1 2 3
start; host_kill 1; wait_launch 60; gone_from 2; gone_from 3; all_clean 2 3

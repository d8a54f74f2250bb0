# dlaunch doctor checks this host, or all hosts of a job, and reports what is wrong with them.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 4
sshd_up 1 2 3

run dlaunch doctor; expect_code 0; expect_out '^host  +address'; expect_out '^0 problems, '
run dlaunch doctor --json; expect_code 0
python3 -c 'import json,sys; r = json.load(open("out")); assert r["format"] == 1 and r["problems"] == 0
h, = r["hosts"]; assert h["cpus"] >= 1 and h["memory_bytes"] > 0 and not r["pairs"], r' || fail "doctor --json"
run on 1 dlaunch doctor --json --ssh-command "$ssh_command" --hosts host1,host2; expect_code 0
python3 -c 'import json; r = json.load(open("out"))
assert [h["host"] for h in r["hosts"]] == ["host1", "host2"] and r["pairs"][0]["bytes_per_s"] > 0, r' || fail "two hosts in JSON"
run on 1 dlaunch doctor --ssh-command "$ssh_command" --hosts host1,host2
expect_code 0; expect_out '^host1  +10.77.0.1  +eth0'; expect_out '^host1  +host2  +[0-9.]+ .?s  +[0-9.]+ [MG]B/s'

link_rate 3 100mbit; on 2 ip link set dev eth0 mtu 1400
run on 1 dlaunch doctor --ssh-command "$ssh_command" --hosts 'host[1-3]:2'
expect_code 1
expect_out '^PROBLEM  host3: 1?[0-9](\.[0-9]+)? MB/s at best to any other host'
expect_out '^PROBLEM  the MTU differs: 1400 \(host2\), 1500 \(host1, host3\)'
[ -z "$(more_than_waits err)" ] || fail "words on stderr"
all_clean 1 2 3

# Slow lines between hosts: it names the sites, and --sites takes the list.
link_rate 3 0; link_delay 3 4ms
run on 1 dlaunch doctor --ssh-command "$ssh_command" --hosts 'host[1-3]:2'
expect_out '^These are 2 sites, with round trips of '
grep '^site[0-9]' out >sites
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
run dlaunch --dry-run --sites sites --site site2 --secret-file secret true; expect_code 0
link_delay 3 0

# doctor reports what would keep a job from starting, in the job's words.
run on 1 dlaunch doctor --ssh-command "$ssh_command" --hosts host1,host4; expect_code 69; expect_err 'host4'
run on 1 dlaunch doctor --no-such-option; expect_code 64

# The same command on each of several hosts makes one job. The hosts start in any order, one failure or
# one signal ends the job, and an elastic job survives the loss of a worker.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 4
rounds=$BUILD/tests/support/rounds_worker

# Ranks and addresses. The leader comes third.
start_job "3 2 1" --nnodes 3 --nproc 2 bash -c \
  'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $(hostname)'
wait_job 60 0
grep -qx '\[1\] 1/6 1/2 0/3 10.77.0.1 host1' out.1 || job_fails "rank 1"
cat out.2 out.3 | grep -qE '^\[4\] 4/6 0/2 2/3 10.77.0.1 host[23]$' || job_fails "rank 4"
# Several programs. The leader refuses a host with other programs.
start_job "2 1" --nnodes 2 -n 1 bash -c 'echo a $RANK $(hostname)' : -n 3 bash -c 'echo b $RANK $(hostname)'
wait_job 60 0
[ "$(cat out.1 out.2 | sort | tr '\n' ';')" = "[0] a 0 host1;[1] b 1 host1;[2] b 2 host2;[3] b 3 host2;" ] || job_fails "other programs"
start_job "1" --nnodes 2 -n 1 true : -n 3 true; start_dlaunch 2 --nnodes 2 -n 2 true : -n 2 true; wait_host 60 2 69
grep -q 'was started with dlaunch .* programs of ranks 0-1 : 2-3; here it is' err.2 || job_fails "other programs are taken"
start_dlaunch 2 --nnodes 2 -n 1 true : -n 3 true; wait_host 60 2 0; wait_host 60 1 0
# The coordinator's address is the same on all hosts.
start_job "2 1" --nnodes 2 --nproc 2 -x AT='${master_addr}:${master_port}' bash -c \
  '[ "$AT" = "$MASTER_ADDR:$MASTER_PORT" ] && echo at $AT ${AT##*:}'
wait_job 60 0
[ "$(cat out.1 out.2 | grep -oE 'at 10\.77\.0\.1:[0-9]+ [0-9]+$' | sort -u | wc -l)" = 1 ] &&
  [ "$(cat out.1 out.2 | grep -c 'at 10\.77')" = 4 ] || job_fails "another coordinator"
# The addresses in TF_CONFIG are also the same on all hosts.
start_job "2 1" --nnodes 2 --nproc 2 --framework tensorflow bash -c 'echo $TF_CONFIG'
wait_job 60 0
[ "$(cat out.1 out.2 | grep -oE '"cluster":\{"worker":\["10.77.0.1:[0-9]+","10.77.0.1:[0-9]+","10.77.0.2:[0-9]+","10.77.0.2:[0-9]+"\]\}' | sort | uniq -c | awk '{ print $1 }')" = 4 ] &&
  [ "$(cat out.1 out.2 | grep -oE '"index":[0-9]' | sort -u | wc -l)" = 4 ] || job_fails "TF_CONFIG"
start_job "1" --nnodes 3 true
for h in 2 3; do start_dlaunch $h --nnodes 3 --node-rank 1 true; done
wait_until grep -q 'node rank 1 is host host[23]' err.2 err.3 || job_fails "two of the same node rank"
kill -INT "${job[1]}"; wait_host 60 1 130
wait_until eval '[ "$(running_jobs)" = 0 ]' || job_fails "a host goes on without the leader"
start_job "1" --nnodes 2 true; start_dlaunch 2 --nnodes 3 true; wait_host 60 2 69
grep -q 'was started with dlaunch .* --nnodes 3:3; here it is' err.2 || job_fails "another --nnodes"
start_dlaunch 2 --nnodes 2 --host-timeout 9s true; wait_host 60 2 69
grep -q 'was started with dlaunch .* --nnodes 2:2, --host-timeout 9 s; here it is' err.2 || job_fails "another time"
(umask 077; echo 0123456789abcdef > other)
start_dlaunch 3 --nnodes 2 --secret-file other true; wait_host 60 3 69
start_dlaunch 4 --nnodes 2 true; wait_host 60 4 0; wait_host 60 1 0

# dlaunch warns once about a host behind a NAT, unless --interface chooses the addresses.
hide() { # hide H: packets of host H have another address on the switch than on the host
  on "$1" ip addr add 10.88.0.7/32 dev eth0 &&
    on "$1" ip route replace 10.77.0.0/24 dev eth0 src 10.88.0.7 &&
    on "$1" nft "table ip t { chain c { type nat hook postrouting priority 100; ip saddr 10.88.0.7 snat to $(host_addr "$1"); }; }"
}
if hide 3; then
  start_job "1 2 3" --nnodes 3 true; wait_job 60 0
  [ "$(grep -c 'translated on the way (NAT)' err.1)" = 1 ] &&
    grep -q 'host host3 has the address 10.88.0.7 for itself and 10.77.0.3 for this host' err.1 ||
    job_fails "no warning about the NAT"
  start_job "1 2 3" --nnodes 3 --interface eth0 true; wait_job 60 0
  grep -q NAT err.1 && job_fails "a warning about a NAT that does no harm"
else
  echo "this kernel translates no addresses: no host behind a NAT"
fi
on 3 nft flush ruleset; on 3 ip route replace 10.77.0.0/24 dev eth0 src "$(host_addr 3)"

# While the job waits for hosts, dlaunchctl says so and can end the job.
start_job 1 --nnodes 2 true
ctl() { on 1 "$BUILD/cli/ctl/dlaunchctl" "$1"; }
wait_until eval 'ctl status 2>/dev/null | grep -q "waits for its hosts: 1 of 2 hosts are here (host1)"' ||
  job_fails "dlaunchctl does not know what is awaited"
ctl stop || job_fails "dlaunchctl stop"
wait_job 60 143

# --timeout also counts while the job waits for hosts, on the leader and on other hosts.
start_job 1 --nnodes 2 --timeout 1s true; wait_job 60 75
grep -q 'the job.s --timeout passed: 1 of 2 hosts are here' err.1 || job_fails "not what was awaited"
start_job 2 --nnodes 2 --timeout 1s true; wait_job 60 75
grep -q 'the job.s --timeout passed: nobody leads it at host1:29400' err.2 || job_fails "not who was awaited"

# A failure on one host ends all hosts at once, and the leader names the failed rank.
start_job "1 2 4" --nnodes 3 --nproc 2 --grace 60s bash -c \
  'if [ $RANK = 3 ]; then read -rt 0.3 <> <(:); exit 7; fi; exec sleep 100'
t0=$(now_ms); wait_job 60 7
grep -qE 'rank 3 \(pid [0-9]+ on host host[24]\) failed first: exit code 7' err.1 || job_fails "no root cause"
[ $(($(now_ms) - t0)) -lt 40000 ] || job_fails "the end took $(($(now_ms) - t0)) ms"

# ^C on any host. Schedulers may send two signals at once. They count as one, so the workers end by themselves.
start_job "1 2" --nnodes 2 --nproc 2 bash -c \
  'trap "echo ended; exit 1" INT; echo here; while :; do sleep 0.1; done'
wait_until eval '[ "$(cat out.1 out.2 | grep -c here)" = 4 ]' || job_fails "no start"
kill -INT "${job[2]}" "${job[2]}"; wait_job 60 130
[ "$(cat out.1 out.2 | grep -c ended)" = 4 ] || job_fails "not all came to their own end"

# A worker is lost: the other workers keep their processes, on every host.
start_job "1 2 3 4" --nnodes 4 --nproc 2 --max-restarts 5 "$rounds" --until enough --step-ms 10
wait_until eval '[ "$(cat out.* | grep -c "in round 1 ")" = 8 ]' || job_fails "no first round"
h=$(grep -l '^\[5\]' out.*)  # the host that has rank 5
on "${h#out.}" kill -9 "$(sed -n 's/^\[5\].*pid //p' "$h" | head -1)"
wait_until later_round 1 8 || job_fails "no later round of all"
end_steps 60 8
[ "$(grep -o 'pid .*' out.* | sort -u | wc -l)" = 9 ] || job_fails "others were started again"
for h in 1 2 3 4; do nothing_left $h; done

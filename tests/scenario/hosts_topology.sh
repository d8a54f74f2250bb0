# Hosts of one rack get neighbouring ranks, in whatever order hosts come or are listed: by the leader's
# --topology, and by the --rack of each host.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 4
printf 'SwitchName=%s\n' 'a Nodes=host[1,3]' 'b Nodes=host[2,4]' 'top Switches=a,b' > racks.conf
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$NODE_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $(hostname)'
# ranks_are "HOSTS": each of these has two ranks, in this order. Behind each line of $where is $after.
after=
ranks_are() {
  local h l rank=0 node=0
  for h in $1; do
    for l in 0 1; do
      cat out* | grep -qx "\[$rank\] $rank/8 $l/2 $node/$node/4 10.77.0.1 host$h$after" || job_fails "rank $rank is not on host $h"
      rank=$((rank + 1))
    done
    node=$((node + 1))
  done
}
# come_in_turn ARGS…: hosts 1 to 4 come one after the other, so that racks alternate. Only host 1 has the file.
come_in_turn() {
  local h
  start_job 1 -v --nnodes 4 --nproc 2 --topology racks.conf "$@"
  for h in 2 3 4; do
    wait_until grep -q "$((h - 1)) of 4 hosts are here" err.1 || job_fails "host $((h - 1)) has not come"
    start_dlaunch $h --nnodes 4 --nproc 2 "$@"
  done
}
come_in_turn bash -c "$where"; wait_job 60 0
ranks_are "1 3 2 4"

# A host is lost, and comes back to its ranks. All others keep theirs.
starts='echo $RANK >> starts.$TORCHELASTIC_RESTART_COUNT; until [ -e enough ]; do read -rt 0.05 <> <(:); done; true'
all_in() { [ "$(sort -u "starts.$1" 2>/dev/null | wc -l)" = 8 ]; }
again=(--max-restarts 1 bash -c "$where \$TORCHELASTIC_RESTART_COUNT; $starts")
come_in_turn "${again[@]}"
wait_until all_in 0 && wait_until eval '[ "$(cat out.* | grep -cE "host[1-4] 0$")" = 8 ]' || job_fails "no start"
host_kill 3; wait "${job[3]}"; unset 'job[3]'
start_dlaunch 3 --nnodes 4 --nproc 2 "${again[@]}"
wait_until all_in 1 || job_fails "no restart"
touch enough; wait_job 60 0
for after in ' 0' ' 1'; do ranks_are "1 3 2 4"; done
after=

# Each host knows its own rack. The leader names a host that does not.
rdzv=(--rdzv "file://$PWD/meet" --secret-file "$PWD/secret" --job-id test)
started_with() { start_dlaunch "$1" --nnodes 4 --nproc 2 --node-rank $(($1 - 1)) "${@:2}" bash -c "$where"; }
start_job ""
started_with 4
DLAUNCH_RACK=east.r2 started_with 3
started_with 2 --rack west.r1
DLAUNCH_RACK=west.r9 started_with 1 --rack east.r1
wait_job 60 0
ranks_are "1 3 2 4"
[ "$(cat err.* | grep -c 'warning: host host4 has no --rack as others have, so it counts as a rack of its own')" = 1 ] ||
  job_fails "host 4 is not named once"

# Each host that may lead needs the same file.
start_job 1 --nnodes 2 --topology racks.conf true
wait_until grep -qs . meet/dlaunch-leader-test || job_fails "nobody leads"
start_dlaunch 2 --nnodes 2 true; wait_host 60 2 69
grep -q 'here it is dlaunch .*, --topology of 4 hosts (' err.2 || job_fails "a host without the file is taken"
start_dlaunch 2 --nnodes 2 --topology racks.conf true; wait_job 60 0

# One dlaunch starts all hosts. A host that is not in the file comes last.
rm -f out.* err.*
sshd_up 1 2 3 4
launch 2 --hosts 'host[1-4]:2' --topology racks.conf bash -c "$where"; expect_code 0
ranks_are "1 3 2 4"
[ -z "$(more_than_waits err)" ] || fail "words on stderr"
printf 'SwitchName=%s\n' 'b Nodes=host[1,4]' 'a Nodes=host3' > short.conf
launch 1 --hosts 'host[1-4]:2' --topology short.conf bash -c "$where"; expect_code 0
ranks_are "1 4 3 2"
[ "$(grep -c 'host host2 is not in short.conf, so it counts as a rack of its own' err)" = 1 ] || fail "host 2 is not named once"
run on 1 dlaunch --dry-run --hosts 'host[1-4]' --topology short.conf true; expect_code 0
expect_out '^order of hosts: host1, host4 in b; host3 in a; host2 in no rack$'
all_clean 1 2 3 4

# A host with ranks dies, is cut off or is stopped. Every other rank gets an error in time that names the lost
# rank, and no rank hangs.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
hosts_up 4

# begin RANKS HOSTS: starts ranks, and waits until they are in large collectives.
begin() {
  start_ranks "$@" dlaunch-bench all_reduce -b 4M -n 1000000
  wait_until grep -q '(us)' out.0 || ranks_fail "no start"
  [ -z "$(cat err.*)" ] || ranks_fail "failed early"
}
lost='(was lost: its connection ended|closed its connection)'
at_once() { [ "$ms" -le 15000 ] || ranks_fail "took $ms ms"; }
in_time() { [ "$ms" -le 20000 ] || ranks_fail "took $ms ms with a time limit of 2 s"; }

# A host dies. The time limit of operations is longer than at_once allows, so a slow operation ends no rank before.
DLAUNCH_OP_TIMEOUT=20s begin 2 2; host_kill 2; ranks_end 40; at_once; ranks_told 0 "rank 1 .*$lost"
DLAUNCH_OP_TIMEOUT=20s begin 4 4; host_kill 3; ranks_end 40; at_once; ranks_told "0 1 3" "rank 2 .*$lost"
DLAUNCH_OP_TIMEOUT=20s begin 4 4; host_kill 1; ranks_end 40; at_once; ranks_told "1 2 3" "rank 0 .*$lost"
DLAUNCH_OP_TIMEOUT=20s begin 4 2; host_kill 2; ranks_end 40; at_once; ranks_told "0 1" "rank [23] .*$lost"

# Ranks with links to their neighbours only, which pass the news on.
for host in 3 1; do
  DLAUNCH_LINKS=few DLAUNCH_OP_TIMEOUT=20s begin 8 4; host_kill $host; ranks_end 40; at_once
  if [ $host = 3 ]; then ranks_told "0 1 2 3 6 7" "rank [45] .*$lost"; else ranks_told "2 3 4 5 6 7" "rank [01] .*$lost"; fi
done

# A firewall opens only the store's port. The ranks report it before the time is up.
wall() { nsenter --net=/run/netns/host1 nft "$@"; }
wall 'table inet wall { chain in { type filter hook input priority 0; iifname "lo" accept;
  tcp dport 29500 accept; tcp flags & (syn|ack) == syn drop; }; }'
DLAUNCH_INIT_TIMEOUT=8s start_ranks 2 2 dlaunch-bench all_reduce -b 8 -e 8
ranks_end 60; wall 'delete table inet wall'
ranks_told 0 'rank 1 has not connected \(a firewall\?\)'
ranks_told 1 'rank 0 .* does not answer at .*: does a firewall stop rank 1\? DLAUNCH_PORT_RANGE'

# A silent link: ranks notice only by the time limit.
begin 2 2; link_cut 2 drop; ranks_end 40; in_time
ranks_told 0 'timed out after.*waiting for rank 1'; ranks_told 1 'timed out after.*for rank 0'
link_heal 2
begin 4 4; link_cut 3 drop; host_kill 3; ranks_end 40; in_time; ranks_told "0 1 3" 'timed out after'
link_heal 3
begin 4 2; link_cut 1 drop; ranks_end 40; in_time; ranks_told "0 1 2 3" 'timed out after'
link_heal 1
DLAUNCH_LINKS=few begin 8 4; link_cut 2 drop; ranks_end 40; in_time
ranks_told "0 1 2 3 4 5 6 7" 'timed out after'
link_heal 2

# The link drops large packets only. A rank with such packets under way says so.
DLAUNCH_OP_TIMEOUT=8s start_ranks 2 2 dlaunch-bench all_reduce -b 1M -e 1M -n 1000000
wait_until grep -q '(us)' out.0 || ranks_fail "no start"
switch_rule large 2 'meta length > 1000 drop'
ranks_end 60; switch_rule large 2 ''
ranks_told "0 1" 'timed out after'
grep -qE 'rank [01] .* does not acknowledge data: .*large packets are lost.*doctor' err.* ||
  ranks_fail "nobody says what is lost"

# The errors name only the frozen rank, and not the ranks that wait for a rank that waits for it. This is
# hardest in a barrier, in which each rank talks to few of the others.
one_frozen() {
  start_ranks 4 4 dlaunch-bench "$1" -b 8 -e 8 -n 10000000
  wait_until grep -q '(us)' out.0 || ranks_fail "no start"
  host_freeze 3
  wait_until 40 eval '! alive ${rank_pids[0]} && ! alive ${rank_pids[1]} && ! alive ${rank_pids[3]}' ||
    ranks_fail "ranks hang"
  host_thaw 3; ranks_end 40
  ranks_say "0 1 3" 'timed out after.*: waiting for rank 2 \(no answer\); arrived: [013,-]*$'
}
# The errors also do not name a rank of the same host that waits for the frozen ranks.
two_frozen() {
  start_ranks 4 2 dlaunch-bench all_reduce -b 32K -e 32K -n 10000000
  wait_until grep -q '(us)' out.0 || ranks_fail "no start"
  host_freeze 2
  wait_until 40 eval '! alive ${rank_pids[0]} && ! alive ${rank_pids[1]}' || ranks_fail "ranks hang"
  host_thaw 2; ranks_end 40
  ranks_say "0 1" 'timed out after.*: waiting for rank 2-3 \(no answer\); arrived: 0-1$'
}
# in_five_tries COMMAND…: the command must succeed in one of five tries. A rank that does not run for a second
# does not answer, and on a busy machine this may happen to any rank.
in_five_tries() {
  local try
  for try in 1 2 3 4 5; do "$@" && return; done
  ranks_fail "$unsaid"
}
in_five_tries one_frozen barrier
in_five_tries one_frozen all_reduce
in_five_tries two_frozen

# In a group, errors also name the rank in the job and its host.
groups() {
  start_ranks 4 4 "$BUILD/tests/support/group_ring"
  for r in 0 1 2 3; do wait_until grep -q 'goes on' out.$r || ranks_fail "no start"; done
}
told() { wait_until 40 eval '! alive ${rank_pids[0]} 2>/dev/null' || ranks_fail "rank 0 hangs"; }
end_others() { host_kill 2; host_kill 4; ranks_end 40; }
groups; host_kill 3; told; end_others
ranks_told 0 'PEER_LOST, lost 1: .*rank 2 \(pid [0-9]+ on host3\)'
group_frozen() {
  groups; host_freeze 3; told; host_thaw 3; end_others
  ranks_say 0 'TIMEOUT.*waiting for rank 1 \(no answer\); arrived: 0; rank 1 of this group is rank 2 \(pid [0-9]+ on host3\)'
}
in_five_tries group_frozen

# A power cut: the host's connections neither end nor answer, and no operation reaches its time limit.
unset DLAUNCH_OP_TIMEOUT
for size in 8 4M; do
  start_ranks 4 4 dlaunch-bench all_reduce -b $size -e $size -n 10000000
  wait_until grep -q '(us)' out.0 || ranks_fail "no start"
  link_cut 3 drop; host_kill 3; ranks_end 60
  [ "$ms" -le 30000 ] || ranks_fail "took $ms ms to notice"
  ranks_told "0 1 3" 'rank 2 .*was lost: its host does not answer'
  link_heal 3
done
export DLAUNCH_OP_TIMEOUT=2s

# A host that is stopped for less than the time limit is not lost. Its kernel still answers, so ranks do not
# report a power cut.
rows() { grep -cE '^ +[0-9]' out.0; }
for limit_and_pause in "10 1" "60 6"; do
  set -- $limit_and_pause
  DLAUNCH_OP_TIMEOUT=$1 start_ranks 2 2 dlaunch-bench all_reduce -b 256K -e 4M -i 256K -n 40
  wait_until eval '[ "$(rows)" -ge 1 ]' || ranks_fail "no row"
  host_freeze 2
  before=$(rows)
  read -rt "$2" <> <(:)
  [ "$(rows)" -le $((before + 1)) ] && running || ranks_fail "went on without host 2"
  host_thaw 2; ranks_right 90
done
begin 2 2; host_freeze 2
wait_until 40 eval '! alive ${rank_pids[0]}' || ranks_fail "rank 0 hangs"
host_thaw 2; ranks_end 40; ranks_told 0 'timed out after.*waiting for rank 1'
ranks_told 1 'rank|timed out'

# A host is cut off before the ranks have met.
export DLAUNCH_INIT_TIMEOUT=5s
link_cut 2 drop
start_ranks 3 3 dlaunch-bench barrier; ranks_end 40
ranks_told 0 'rank 1 of 3 has not arrived'
ranks_told 2 'rank 1 of 3 has not arrived'  # even if rank 0 with the store ends first
ranks_told 1 'store at host1:29500: not reached in'
link_heal 2

# Last, because not every kernel supports this.
export DLAUNCH_INIT_TIMEOUT=60s
DLAUNCH_OP_TIMEOUT=20s begin 2 2; link_cut 2 reset; ranks_end 40; at_once
ranks_told 0 "rank 1 .*$lost"; ranks_told 1 "rank 0 .*$lost"
link_heal 2
DLAUNCH_OP_TIMEOUT=20s begin 4 4; link_cut 2 reset; ranks_end 40; at_once; ranks_told "0 1 2 3" "rank [0-3] .*$lost"
link_heal 2

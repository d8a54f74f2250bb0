# all_reduce_some() between hosts: with a slow rank, over slow and lossy links, all ranks get the same weights, and each
# contribution is in one result or dropped.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
need_numpy
export DLAUNCH_OP_TIMEOUT=30s
hosts_up 3
steps=("$python" "$SOURCE/tests/scenario/some_steps.py")
all_end() {
  ranks_end 60
  [ -z "${codes//0 /}" ] || ranks_fail "exit codes $codes"
  grep -qE "$1" out.$2 || ranks_fail "rank $2 does not say $1"
}
start_ranks 3 3 "${steps[@]}" drop 60; all_end '^tcp: 0 of [0-9]+ contributions are in|^tcp: .* [1-9][0-9]* dropped' 2
start_ranks 6 3 "${steps[@]}" carry 60; all_end '^shm.tcp: [1-9][0-9]* of [0-9]+ contributions are in, 0 dropped' 5
for h in 1 2 3; do link_rate $h 200mbit; done
link_loss 2 0.5%; link_delay 3 1ms
DLAUNCH_LINKS=few start_ranks 5 3 "${steps[@]}" carry 40; all_end 'are in, 0 dropped' 4
# The slow rank's host is lost while others owe it results.
start_ranks 3 3 "${steps[@]}" drop 100000
wait_until grep -qs 'is late' out.2 || ranks_fail "rank 2 is never late"
host_kill 3
ranks_end 60
ranks_told "0 1" 'PeerLost: .*rank 2'

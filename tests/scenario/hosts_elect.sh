# Hosts that meet by a shared folder elect one of them as leader, in whatever order they come.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 3
rounds=$BUILD/tests/support/rounds_worker
rdzv=(--rdzv "file://$PWD/meet" --secret-file "$PWD/secret" --job-id test)

start_job "3 1 2" --nnodes 3 --nproc 2 bash -c \
  'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $(hostname)'
wait_job 60 0
[ "$(cat out.* | grep -c '/6 ./2 ./3 10.77.0.[123] host[123]$')" = 6 ] || job_fails "not six ranks"
[ -z "$(ls meet)" ] || job_fails "left in the folder: $(ls meet)"
for h in 1 2 3; do nothing_left $h; done

# Hosts get the numbers of --node-rank, whichever host leads. Each host reports a failure once.
says='echo node $GROUP_RANK $(hostname)'
start_job "2" --nnodes 2 --node-rank 1 bash -c "$says; until [ -e up0 ]; do read -rt 0.05 <> <(:); done; exit 1"
start_dlaunch 3 --nnodes 2 --node-rank 0 bash -c "$says; touch up0; exec sleep 100"
wait_job 60 1
grep -q 'node 1 host2' out.2 && grep -q 'node 0 host3' out.3 || job_fails "other numbers"
for h in 2 3; do [ "$(grep -c 'failed first: exit code 1' err.$h)" = 1 ] || job_fails "host $h is not told once"; done

# ^C on any host ends the job. Before all hosts have joined, it ends only the dlaunch of this host.
start_job "1 2" --nnodes 2 bash -c 'echo here; exec sleep 100'
wait_until eval '[ "$(cat out.1 out.2 | grep -c here)" = 2 ]' || job_fails "no start"
kill -INT "${job[2]}"; wait_job 60 130
start_job "1" --nnodes 2 true
wait_until grep -qs . meet/dlaunch-leader-test || job_fails "nobody leads"
kill -INT "${job[1]}"; wait_job 60 130
nothing_left 1

# Two hosts have the same address, as containers of two machines may.
for h in 1 2; do ip -n host$h addr add 192.0.2.1/32 dev lo; done
start_job "1 2" --nnodes 2 --interface 192.0.2.1 --join-timeout 8s true; wait_job 60 69
cat err.1 err.2 | grep -q 'this host has the address 192.0.2.1 itself (lo)' || job_fails "nobody says why"

# A folder or an etcd that does not exist.
start_job "1" --nnodes 2 --rdzv file:///no/such/folder true; wait_job 60 69
grep -q '/no/such/folder' err.1 || job_fails "nobody says which folder"
start_job "1" --nnodes 2 --join-timeout 2s --rdzv etcd://host2:2379 true; wait_job 60 69
grep -q 'etcd host2:2379: ' err.1 || job_fails "nobody says which etcd"

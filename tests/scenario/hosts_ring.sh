# Ranks on several hosts find each other by MASTER_ADDR and MASTER_PORT and compute the right results: with
# one or two ranks on a host, over IPv4 and IPv6, over slow and lossy links.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
hosts_up 4
export DLAUNCH_OP_TIMEOUT=30s
bench=(dlaunch-bench all_reduce -b 8 -f 8 -c 1 -n 3 -w 0 -e)

for shape in "2 2 tcp" "4 4 tcp" "3 2 tcp" "4 2 shm.tcp"; do
  set -- $shape
  start_ranks $1 $2 "${bench[@]}" 4M; ranks_right 90
  grep -q "transport $3" out.0 || ranks_fail "transport with $shape"
done
grep -qE 'Rank  1 pid +[0-9]+ on host1$' out.0 && grep -qE 'Rank  2 pid +[0-9]+ on host2$' out.0 ||
  ranks_fail "ranks are not where they should be"
for c in reduce_scatter all_gather broadcast sendrecv barrier; do
  start_ranks 4 4 dlaunch-bench $c -b 4K -e 256K -f 64 -n 3 -w 0; ranks_right 90
done
start_ranks 4 2 dlaunch-bench broadcast -b 8 -e 4M -f 64 -r 3 -n 3 -w 0; ranks_right 90
# Ranks that first connect with their neighbours only make other connections when they need them.
DLAUNCH_LINKS=few start_ranks 8 2 "${bench[@]}" 512K; ranks_right 90
grep -q 'transport shm.tcp' out.0 || ranks_fail "transport with few links"
DLAUNCH_LINKS=few start_ranks 6 3 dlaunch-bench sendrecv -b 4K -e 256K -f 64 -n 3 -w 0; ranks_right 90
# One host has nearly all ranks, some with neighbours on their own host only; neighbours are on different hosts.
for host_of in 'r == 20 ? 2 : 1' 'r % 3 + 1'; do
  DLAUNCH_LINKS=few start_ranks 21 3 "${bench[@]}" 64K; ranks_right 90
done
unset host_of
# With a wire codec. The benchmark's sums are small whole numbers, which bf16 holds exactly.
DLAUNCH_WIRE_CODEC=bf16 start_ranks 4 2 "${bench[@]}" 4M; ranks_right 90
DLAUNCH_WIRE_CODEC=int8 start_ranks 2 2 dlaunch-bench all_reduce -b 8 -e 4M -f 8 -c 0 -n 3; ranks_end 90
[ -z "${codes//0 /}" ] || ranks_fail "int8: exit codes $codes"
cat > codecs.sh <<'L'
[ $RANK = 1 ] && export DLAUNCH_WIRE_CODEC=int8
exec "$@"
L
start_ranks 2 2 bash codecs.sh dlaunch-bench barrier; ranks_end 90
grep -q 'different wire codecs' err.0 || ranks_fail "ranks with different codecs"
for master in 10.77.0.1 host1-6 '[fd77::1]' fd77::1; do
  start_ranks 4 4 "${bench[@]}" 4M; ranks_right 90
done
master=host1
# Rank 0 comes last: the others wait for its store.
cat > late.sh <<'L'
[ $RANK = 1 ] || read -rt 0.5 <> <(:)
exec "$@"
L
start_ranks 2 2 bash late.sh "${bench[@]}" 4M; ranks_right 90

for h in 1 2 3 4; do link_rate $h 200mbit; done
start_ranks 4 4 "${bench[@]}" 4M; ranks_right 90
link_loss 2 1%; link_delay 3 1ms
start_ranks 4 4 "${bench[@]}" 512K; ranks_right 90

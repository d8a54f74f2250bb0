# The addresses of ranks on several hosts: with file:// and without a default route, with an interface
# or network of DLAUNCH_INTERFACE, and with ports of DLAUNCH_PORT_RANGE.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
hosts_up 2
export DLAUNCH_OP_TIMEOUT=30s
bench=(dlaunch-bench all_reduce -b 8 -f 8 -c 1 -n 3 -w 0 -e 4K)

export DLAUNCH_RDZV="file://$tmp/meet"
mkdir "$tmp/meet"
start_ranks 2 2 "${bench[@]}"; ranks_right 60
for net in eth0 fd77::/16 wlan0,10.77.0.0/24; do
  DLAUNCH_INTERFACE=$net start_ranks 2 2 "${bench[@]}"; ranks_right 60
done
unset DLAUNCH_RDZV
DLAUNCH_INTERFACE=eth9 start_ranks 2 2 "${bench[@]}"; ranks_end 60
ranks_told "0 1" "DLAUNCH_INTERFACE: 'eth9' fits no address of this host; it has .*eth0 10.77.0."

# Each of the two ranks of a host takes a port of its own. A third rank finds no port.
DLAUNCH_PORT_RANGE=29600-29601 start_ranks 4 2 "${bench[@]}"; ranks_right 60
DLAUNCH_INIT_TIMEOUT=2s DLAUNCH_PORT_RANGE=29600-29601 start_ranks 6 2 "${bench[@]}"; ranks_end 60
grep -q 'all ports of 29600-29601 (DLAUNCH_PORT_RANGE) are taken' err.* || ranks_fail "no word"

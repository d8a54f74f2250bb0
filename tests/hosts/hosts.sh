# Test hosts on one machine: scenarios source this instead of common.sh, which it includes.
# HACKING.md says how to use it.
#
# The scenario restarts as process 1 of its own namespaces. Its network is the switch that joins the
# hosts, without the machine's network. The hosts' namespaces are below it, so they end with it, for
# whatever reason: no process, interface, mount or file is left.
set -u
if declare -F hosts_up >/dev/null; then return 0; fi
if [ "${DL_TEST_HOSTS:-} $PPID $$" != "inside 0 1" ]; then
  hosts_skip() { echo "SKIP: test hosts: $*"; exit 77; }
  [ "$(id -u)" = 0 ] || hosts_skip "only root can make them"
  for tool in ip nft nsenter ss tc unshare; do
    command -v $tool >/dev/null || hosts_skip "$tool is not installed"
  done
  private=(unshare --net --mount --ipc --pid --fork --kill-child --mount-proc)
  "${private[@]}" true 2>/dev/null || hosts_skip "namespaces are not allowed here"
  DL_TEST_HOSTS=inside exec "${private[@]}" bash "$0" "$@"
fi
unset DL_TEST_HOSTS
# Holds the state of the hosts and of tools, and $tmp. Without a utab mount(8) leaves no /run/mount.
LIBMOUNT_UTAB=/dev/null mount -t tmpfs -o mode=755 hosts /run || exit 1
export TMPDIR=/run
source "$SOURCE/tests/scenario/common.sh"

hosts_outer=()  # by host: the process with which the host ends
hosts_init=()   # by host: its process 1
hosts_cable=()  # by host: the program that delays its packets; empty without a delay
hosts_lossy=()  # by host: not empty while its link loses packets
host_addr() { echo "10.77.0.$1"; }
host_addr6() { echo "fd77::$1"; }
host_dir() { echo "/run/hosts/$1"; }

# Whether this kernel supports the hosts; if not, a scenario proves nothing.
hosts_probe() {
  local why
  why=$(hosts_try 2>&1 >/dev/null) || skip "test hosts: the kernel lacks something: $why"
}
hosts_try() {
  local chain='chain c { type filter hook forward priority 0;'
  echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || return 1  # for the switch, not for hosts
  ip link add probe type bridge && ip link delete probe &&
    ip link add probe type veth peer name eborp &&
    tc qdisc add dev probe root tbf rate 1mbit burst 16kb latency 20ms && ip link delete probe &&
    nft "table bridge t { $chain numgen random mod 9 < 1 drop; }; }" &&
    nft "table inet t { $chain meta l4proto tcp reject with tcp reset; }; }" && nft flush ruleset
}

# hosts_up N: starts hosts 1 to N, named host1 to hostN (host1-6 to hostN-6 by IPv6), on one switch.
hosts_up() {
  local h pid
  hosts_probe
  ip link set lo up && ip link add switch type bridge mcast_snooping 0 && ip link set switch up ||
    fail "no switch"
  mkdir -p /run/hosts /run/sys
  mountpoint -q /run/sys || mount -t sysfs sys /run/sys || fail "no sysfs"
  for ((h = 1; h <= $1; ++h)); do
    echo "$(host_addr "$h") host$h"; echo "$(host_addr6 "$h") host$h-6"
  done > /run/hosts/names
  printf '%s localhost\n' 127.0.0.1 ::1 >> /run/hosts/names
  for ((h = 1; h <= $1; ++h)); do host_up "$h"; done
  for ((h = 1; h <= $1; ++h)); do
    wait_until test -e "$(host_dir "$h")/up" || fail "host $h does not come up"
    pid=${hosts_outer[h]}
    read -r "hosts_init[h]" < "/proc/$pid/task/$pid/children"
  done
}
host_up() {
  local h=$1 name=host$1
  mkdir -p "$(host_dir "$h")/tmp"
  ip netns add "$name" && ip link add "$name" type veth peer name eth0 netns "$name" &&
    ip link set "$name" master switch up && ip -n "$name" link set lo up &&
    ip -n "$name" link set eth0 up && ip -n "$name" addr add "$(host_addr "$h")/24" dev eth0 &&
    ip -n "$name" addr add "$(host_addr6 "$h")/64" dev eth0 nodad || fail "no network for host $h"
  in_order "/run/sys/class/net/$name" || fail "no order on the link of host $h"
  ip netns exec "$name" bash -c "$(declare -f in_order host_network); host_network" ||
    fail "no network in host $h"
  (
    export -f host_main host_dir
    exec nsenter --net="/run/netns/$name" unshare --uts --mount --ipc --pid --fork --kill-child \
      --mount-proc bash -c "host_main $h"
  ) </dev/null & hosts_outer[h]=$!
  disown
}
# Packets of a connection pass interface $1 on one processor, so that packets stay in order.
in_order() {
  local queue cpus; cpus=$(getconf _NPROCESSORS_ONLN)
  for queue in "$1"/queues/rx-*/rps_cpus; do
    printf '%x' $(((1 << (cpus < 16 ? cpus : 16)) - 1)) > "$queue" || return 1
  done
}
# The congestion control of the hosts: the usual cubic if the machine allows it, else the oldest, reno.
host_network() {
  local control=/proc/sys/net/ipv4/tcp_congestion_control
  in_order /sys/class/net/eth0 && { echo cubic > $control || echo reno > $control; } 2>/dev/null
}
# The host's process 1 only waits, and reaps orphans.
host_main() {
  local never
  hostname "host$1" && mount --bind /run/hosts/names /etc/hosts &&
    mount -t tmpfs -o mode=1777 hosts /dev/shm && touch "$(host_dir "$1")/up" || exit 1
  exec {never}<> <(:)
  while :; do read -ru "$never"; done
}
hosts_down() {
  local h
  for h in "${!hosts_init[@]}"; do
    link_delay "$h" 0
    kill -9 "${hosts_outer[h]}"
    wait_until eval "! alive ${hosts_init[h]} 2>/dev/null" || fail "host $h does not end"
    ip link delete "host$h" && ip netns delete "host$h" && rm -rf "$(host_dir "$h")"
    unset "hosts_lossy[$h]"
  done
  hosts_init=() hosts_outer=()
  nft flush ruleset
  ip link delete switch
}

# more_than_waits FILE: prints its lines without the warnings that dlaunch waits for a host, which a slow machine causes.
more_than_waits() { grep -vE ' hosts are here.*; waiting for the others$|: waiting for the leading dlaunch at |: waiting for an answer by ' "$1"; }

# on H COMMAND…: runs the command on host H, in the current folder, in a session of its own. Input,
# output, signals and the exit code pass through.
on() {
  local h=$1; shift
  TMPDIR=$(host_dir "$h")/tmp "$BUILD/tests/hosts/enter" "${hosts_init[h]-0}" "$PWD" "$@"
}
# start_on H COMMAND…: the same in the background, as $!.
start_on() {
  local h=$1; shift
  TMPDIR=$(host_dir "$h")/tmp "$BUILD/tests/hosts/enter" "${hosts_init[h]-0}" "$PWD" "$@" <&0 &
  started+=($!)
}

# rack_up NAME RATE H…: moves these hosts to a switch of their own, which a line of that rate joins to the other one.
# Their own lines keep their rates and losses. Call it before link_delay.
rack_up() {
  local name=$1 rate=$2 h; shift 2
  ip link add "$name" type bridge mcast_snooping 0 && ip link set "$name" up &&
    ip link add "up-$name" type veth peer name "down-$name" &&
    ip link set "up-$name" master "$name" up && ip link set "down-$name" master switch up || fail "no rack $name"
  in_order "/run/sys/class/net/up-$name"; in_order "/run/sys/class/net/down-$name"
  for h; do ip link set "host$h" master "$name" || fail "host $h has no place in rack $name"; done
  rack_rate "$name" "$rate"
}
# rack_rate NAME RATE: likewise later; 0: no limit.
rack_rate() {
  local end
  for end in "up-$1" "down-$1"; do
    tc qdisc delete dev "$end" root 2>/dev/null
    [ "$2" = 0 ] || tc qdisc add dev "$end" $(shape_of "$2") || fail "rack_rate $*"
  done
}
# The bytes that have left a rack.
bytes_out_of_rack() { cat "/run/sys/class/net/up-$1/statistics/tx_bytes"; }

# Kills all processes of host H at once. Its kernel lives on and closes their connections.
host_kill() { on "$1" bash -c 'kill -KILL -1 2>/dev/null; :'; }
host_freeze() {
  on "$1" bash -c 'kill -STOP -1 2>/dev/null; :'
  wait_until on "$1" bash -c "$all_stopped" || fail "host $1 does not stop"
}
# A signal does not act at once: a thread that runs on another processor continues until it next enters
# the kernel. Exit code 0: each thread is stopped, except those of the first process and of this shell.
# The function starts no program, because that would be one more thread.
all_stopped='for stat in /proc/[0-9]*/task/*/stat; do
  case $stat in /proc/1/* | /proc/$$/*) continue ;; esac
  { read -r line < "$stat"; } 2>/dev/null || continue
  line=${line##*) }; [[ $line == [TtZX]* ]] || exit 1
done'
host_thaw() { on "$1" bash -c 'kill -CONT -1 2>/dev/null; :'; }

# link_rate H RATE: limits the rate to and from host H, in tc's units such as 1gbit; 0: no limit.
link_rate() {
  local h=$1
  tc qdisc delete dev "host$h" root 2>/dev/null
  tc -n "host$h" qdisc delete dev eth0 root 2>/dev/null
  [ "$2" != 0 ] || return 0
  tc qdisc add dev "host$h" $(shape_of "$2") && tc -n "host$h" qdisc add dev eth0 $(shape_of "$2")
}
# What limits an interface to a rate. A burst lasts 2 ms. A longer one would change the rate, and a shorter one needs a
# finer clock.
shape_of() {
  local kbit=${1%[kmg]bit}
  case $1 in *gbit) kbit=$((kbit * 1000000)) ;; *mbit) kbit=$((kbit * 1000)) ;; esac
  echo "root tbf rate ${kbit}kbit burst $((kbit / 4 > 16000 ? kbit / 4 : 16000)) latency 20ms"
}

# link_loss H PERCENT: loses this share of the packets to and from host H, such as 0.1%; 0: none.
link_loss() {
  local ppm other rule= segments=65535
  ppm=$(awk "BEGIN { printf \"%d\", ${2%\%} * 10000 }")
  unset "hosts_lossy[$1]"
  [ "$ppm" = 0 ] || { hosts_lossy[$1]=yes; rule="numgen random mod 1000000 < $ppm drop"; }
  # The link loses single packets, so no packet may be a bundle that a network card would divide.
  [ ${#hosts_lossy[@]} = 0 ] || segments=1
  for other in "${!hosts_init[@]}"; do
    ip -n "host$other" link set eth0 gso_max_segs $segments
  done
  switch_rule "loss$1" "$1" "$rule"
}
# switch_rule TABLE H RULE: for packets that pass the switch to or from host H; empty: removes the
# rule.
switch_rule() {
  local ports="{ \"host$2\", \"delay$2\" }"
  nft "table bridge $1; delete table bridge $1"
  [ -z "$3" ] || nft "table bridge $1 { chain c { type filter hook forward priority 0;
    iifname $ports $3; oifname $ports $3; }; }"
}

# link_cut H drop: loses all packets, without a notice.
# link_cut H reset: resets the TCP connections to and from host H, and later attempts as well.
link_cut() {
  case $2 in
    drop) switch_rule "cut$1" "$1" drop ;;
    reset) nsenter --net="/run/netns/host$1" bash -c \
      "$(declare -f reset_all); reset_all $(host_addr "$1") $(host_addr6 "$1")" ||
      skip "test hosts: the kernel cannot reset connections" ;;
    *) fail "link_cut $*" ;;
  esac
}
reset_all() {
  local remote="not ( dst 127.0.0.0/8 or dst [::1] or dst $1 or dst [$2] )" left
  nft 'table inet cut {
    chain in { type filter hook input priority 0; iifname "lo" accept;
      meta l4proto tcp reject with tcp reset; meta l4proto udp drop; };
    chain out { type filter hook output priority 0; oifname "lo" accept;
      tcp flags & rst == rst accept; meta l4proto tcp reject with tcp reset;
      meta l4proto udp drop; }; }' || return 1
  # The rules answer senders; this resets connections that only wait.
  ss --kill --tcp --numeric state connected "$remote" >/dev/null &&
    left=$(ss --no-header --tcp --numeric state established "$remote") && [ -z "$left" ]
}
# Undoes link_cut.
link_heal() {
  switch_rule "cut$1" "$1" ""
  nsenter --net="/run/netns/host$1" nft 'table inet cut; delete table inet cut'
}

# link_delay H TIME: delays packets to and from host H by this time, such as 20ms or 500us; 0: no delay.
link_delay() {
  local h=$1 us=${2%[mu]s} log
  case $2 in *ms) us=$((us * 1000)) ;; esac
  if [ -n "${hosts_cable[h]-}" ]; then
    kill -9 "${hosts_cable[h]}"
    unset "hosts_cable[h]"
    ip link delete "delay$h"
    ip link set "host$h" master switch
  fi
  [ "$us" != 0 ] || return 0
  ip link add "delay$h" type veth peer name "cable$h" && ip link set "cable$h" up &&
    ip link set "host$h" nomaster && ip link set "delay$h" master switch up || fail "link_delay $*"
  in_order "/run/sys/class/net/delay$h"; in_order "/run/sys/class/net/cable$h"
  log=$(host_dir "$h")/cable
  "$BUILD/tests/hosts/delay_link" "host$h" "cable$h" "$us" >"$log" 2>&1 & hosts_cable[h]=$!
  disown
  wait_until grep -qx up "$log" || fail "link_delay: $(cat "$log")"
}

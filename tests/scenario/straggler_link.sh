# A connection between two ranks stays slower than the others. dlaunch names this connection once, with the
# evidence, names neither of its ranks as slow, and does nothing else. PAIR="1 3" takes another pair than 0
# and 2, RATE another rate. The scenario has a network of its own, without the machine's network.
if [ "${DL_TEST_LINK:-} $PPID $$" != "inside 0 1" ]; then
  link_skip() { echo "SKIP: a slow link: $*"; exit 77; }
  [ "$(id -u)" = 0 ] || link_skip "only root can make one"
  for tool in ip ss tc unshare; do command -v $tool >/dev/null || link_skip "$tool is not installed"; done
  private=(unshare --net --pid --fork --kill-child --mount-proc)
  "${private[@]}" true 2>/dev/null || link_skip "namespaces are not allowed here"
  DL_TEST_LINK=inside exec "${private[@]}" bash "$0" "$@"
fi
unset DL_TEST_LINK
source "$SOURCE/tests/scenario/common.sh"
read -r a b <<<"${PAIR:-0 2}"
ip link set lo up || fail "no loopback"
why=$({ tc qdisc add dev lo root handle 1: htb && tc filter add dev lo parent 1: protocol ip \
  u32 match ip sport 1 0xffff flowid 1:1; } 2>&1) || skip "a slow link: the kernel lacks something: $why"
tc qdisc delete dev lo root

# begin OPTIONS…: starts a job of four ranks over TCP, in which each step moves 512 KiB over each link.
begin() {
  dlaunch --progress none --nproc 4 --transport tcp --straggler warn --straggler-window 400ms --straggler-ratio 1.5 \
    "$BUILD/tests/support/rounds_worker" "$@" --step-ms 2 --bytes 1048576 >out 2>err & job=$!
  started+=($job)
}
pid_of() { sed -n "s/.* as $1 of 4, pid //p" out; }
# Prints the ports of the connection between ranks $a and $b that carries the data, which is by far the most bytes.
find_data() {
  pa=$(pid_of "$a") pb=$(pid_of "$b")
  [ -n "$pa" ] && [ -n "$pb" ] || return 1
  ends=$(ss -tinpH | paste - - | awk -v a="pid=$pa," -v b="pid=$pb," '
    match($0, /bytes_received:[0-9]+/) { bytes = substr($0, RSTART + 15, RLENGTH - 15) + 0 }
    index($0, a) { mine[$4 " " $5] = bytes }
    index($0, b) { theirs[$5 " " $4] = 1 }
    END { for (c in mine) if (c in theirs && mine[c] > 1e6) { gsub(/[^ ]*:/, "", c); print c } }')
  [ -n "$ends" ]
}
# slow_down PORT PORT: limits both directions of that connection to RATE.
slow_down() {
  local class=1 ports
  tc qdisc add dev lo root handle 1: htb || return 1
  for ports in "$1 $2" "$2 $1"; do
    tc class add dev lo parent 1: classid 1:$class htb rate "${RATE:-400mbit}" quantum 65536 burst 64k &&
      tc filter add dev lo parent 1: protocol ip u32 match ip sport "${ports% *}" 0xffff \
        match ip dport "${ports#* }" 0xffff flowid 1:$class || return 1
    class=$((class + 1))
  done
}
names_link() { grep -qE "the link from rank ($a to rank $b|$b to rank $a) is [0-9.]+x as slow" err; }

for try in 1 2 3; do  # on a busy machine a link may be slow
  begin --steps 900
  wait $job || fail "the job without a slow link ends with code $?"
  [ -s err ] || break
done
[ ! -s err ] || fail "a job without a slow link: $(cat err)"

begin --until enough
wait_until find_data || fail "no connection of ranks $a and $b: $(ss -tnp)"
slow_down $ends || fail "the link could not be slowed down"
wait_until names_link || fail "the link of ranks $a and $b was not named"
read -rt 2 <> <(:)  # five more windows, in which dlaunch must not repeat the warning
touch enough; wait $job || fail "the job with a slow link ends with code $?"
[ -z "$(grep -vE "the link from rank ($a to rank $b|$b to rank $a) is" err)" ] || fail "something else was said"
[ -z "$(grep -o 'from rank . to rank .' err | sort | uniq -d)" ] || fail "it was said more than once"
[ "$(grep -c ' in round' out)" = 4 ] || fail "something was done about it: $(cat out)"
[ -z "${VERBOSE:-}" ] || cat err

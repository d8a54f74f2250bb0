# Test hosts leave no process, interface, mount, namespace or file behind, however their scenario ends.
# A machine that does not support them skips the scenario.
source "$SOURCE/tests/scenario/common.sh"
export TMPDIR=$tmp/private; mkdir "$TMPDIR"

cat > hosts.sh <<'S'
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
hosts_up 2
link_delay 2 1ms; link_rate 1 100mbit; link_loss 1 1%; link_cut 1 reset; link_cut 2 drop
start_on 1 bash -c 'setsid sleep 1000 & touch up.1; exec sleep 1000'
wait_until test -e up.1 || fail "host 1"
host_freeze 1
echo $TMPDIR $$ >&9
case $1 in
  end) hosts_down ;;
  exit) exit 3 ;;
  *) read -r never < <(sleep 1000) ;;
esac
S
what_there_is() {
  ip -br link; ip netns list; cat /proc/self/mounts; ls -A "$TMPDIR" /run
  find /sys/fs/cgroup -maxdepth 2 -type d 2>/dev/null
}
# All processes of the hosts' scenario have this in their environment.
mark=DL_LEAVE_NOTHING=$$.$EPOCHREALTIME
left() { grep -lsF "$mark" /proc/[0-9]*/environ; }
what_there_is > before
for end in end exit TERM KILL; do
  rm -f inside; mkfifo inside
  env "$mark" bash hosts.sh $end >out 2>err </dev/null 9>inside & pid=$!
  started+=($pid)
  read -rt 60 < inside || { wait $pid; [ $? = 77 ] && skip "$(cat out)"; fail "no hosts"; }
  case $end in
    TERM) kill -TERM "$(cat /proc/$pid/task/$pid/children)" ;;
    KILL) [ -n "$(left)" ] || fail "no process found"; kill -KILL $pid ;;
  esac
  { wait $pid; code=$?; } 2>/dev/null
  case $end in end) expect_code 0 ;; exit) expect_code 3 ;; esac
  wait_until 30 eval '[ -z "$(left)" ]' || fail "processes left after $end: $(left)"
  same() { what_there_is > after; cmp -s before after; }
  wait_until 30 same || fail "left after $end: $(diff before after)"
done

if unshare --map-user=1000 true 2>/dev/null; then
  run unshare --map-user=1000 bash hosts.sh end
  expect_code 77; expect_out '^SKIP: test hosts: only root'
fi

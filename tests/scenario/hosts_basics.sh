# The test hosts work as described: each has its own names, addresses and processes, and links have the
# requested speed, delay, loss and faults.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
hosts_up 3

run on 2 hostname; expect_code 0; expect_out '^host2$'
run on 1 getent ahosts host3; expect_out '^10\.77\.0\.3 '
run on 1 getent ahosts host3-6; expect_out '^fd77::3 '
run on 1 ip -br addr; expect_out '^eth0.* 10\.77\.0\.1/24 fd77::1/64'
expect_out '^lo .*127\.0\.0\.1'
[ "$(wc -l < out)" = 2 ] || fail "other interfaces than its own"
run on 1 ip route get 192.0.2.1; expect_err unreachable
on 1 touch /dev/shm/of-host1; on 2 test -e /dev/shm/of-host1 && fail "hosts share /dev/shm"
[ "$(echo through | on 1 cat)" = through ] || fail "standard input"
run on 3 bash -c 'pwd; echo "$TMPDIR"; exit 7'; expect_code 7
[ "$(cat out)" = "$PWD"$'\n'/run/hosts/3/tmp ] || fail "folders: $(cat out)"
run on 3 bash -c 'kill -9 $$'; expect_code 137
run on 4 true; expect_code 125; expect_err 'No such process'

# In the background: signals reach the command, also SIGKILL. Hosts do not see each other's processes.
start_on 1 bash -c "$never"'trap "exit 5" TERM; touch up; while :; do read -rt 1 -u 9; done'; pid=$!
wait_until test -e up || fail "start_on"
kill -TERM $pid; wait $pid; [ $? = 5 ] || fail "SIGTERM did not reach the command"
sleeps() { on "$1" bash -c 'grep -qsx sleep /proc/[0-9]*/comm'; }
start_on 1 sleep 1000; pid=$!
wait_until sleeps 1 || fail "no sleep on host 1"
sleeps 2 && fail "host 2 sees a process of host 1"
{ kill -KILL $pid; wait $pid; } 2>/dev/null
wait_until eval '! sleeps 1' || fail "SIGKILL did not reach the command"

# Host 2 returns the bytes of a TCP connection, and counts datagrams.
cat > serve.py <<'P'
import socket, threading
def echo(c):
    try:
        while data := c.recv(1 << 16): c.sendall(data)
    except OSError as e: print(e, flush=True)
    c.close()
def count(u, c):
    got = 0
    u.settimeout(0)  # drops datagrams that came too late for an earlier question
    try:
        while True: u.recv(100)
    except BlockingIOError: c.sendall(b"!")
    u.settimeout(2)
    try:
        while u.recv(100): got += 1
    except TimeoutError: c.sendall(str(got).encode())
    c.close()
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.bind(("::", 5))
u.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
l = socket.create_server(("::", 5), family=socket.AF_INET6, dualstack_ipv6=True)
print("up", flush=True)
while True:
    c = l.accept()[0]
    threading.Thread(target=count, args=(u, c)).start() if c.recv(1) == b"u" else \
        threading.Thread(target=echo, args=(c,)).start()
P
cat > ask.py <<'P'
import os, socket, statistics, sys, threading, time
what, host = sys.argv[1:3]
s = socket.create_connection((host, 5), timeout=15)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.sendall(b"u" if what == "lost" else b"e")
def read(n):
    while n > 0:
        got = len(s.recv(min(n, 1 << 20)))
        if got == 0: sys.exit("closed")
        n -= got
def round_trip():
    t = time.monotonic(); s.sendall(b"x"); read(1)
    return (time.monotonic() - t) * 1000
if what == "ms": print(round(statistics.median(round_trip() for _ in range(9))))
if what == "mbit":  # in both directions at once; the first MiB, which buffers take, does not count
    bulk, n = bytes(1 << 20), int(sys.argv[3])
    threading.Thread(target=lambda: [s.sendall(bulk) for _ in range(n)], daemon=True).start()
    read(1 << 20); t = time.monotonic(); read(n - 1 << 20)
    print(round((n - 1 << 20) * 8e-6 / (time.monotonic() - t)))
if what == "lost":
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    read(1)
    for _ in range(4000): u.sendto(b"x", (host, 5))
    print(4000 - int(s.recv(100)))
if what == "same":  # random bytes come back unchanged
    data = os.urandom(8 << 20)
    threading.Thread(target=s.sendall, args=(data,), daemon=True).start()
    print(s.makefile("rb").read(len(data)) == data)
if what == "talk":  # one round trip for each line of stdin, until the connection fails
    print(round(round_trip()), flush=True)
    while True:
        sys.stdin.readline() or sys.exit()
        try: print(round(round_trip()), flush=True)
        except OSError as e: sys.exit(str(e))
P
start_on 2 python3 serve.py >served 2>&1
wait_until grep -q up served || fail "no server: $(cat served)"
# ask RANGE WHAT…: the answer must be within the range. A busy machine has several tries.
ask() {
  local low=${1%-*} high=${1#*-} end=$((SECONDS + 60)); shift
  while [ $SECONDS -lt $end ]; do
    run on 1 python3 ask.py "$@"
    [ "$code" = 0 ] && [ "$(cat out)" -ge "$low" ] && [ "$(cat out)" -le "$high" ] && return
  done
  fail "$*: $(cat out), expected $low to $high"
}
ask 0-5 ms host2; ask 0-5 ms host2-6

ask 1-1000000 mbit host2 64; free=$(cat out)  # the present speed of this machine
link_rate 2 100mbit; ask 85-115 mbit host2 8; ask 85-115 mbit host2-6 8; slow=$(cat out)
link_rate 2 1gbit; ask $((free < 3400 ? free / 4 : 850))-1150 mbit host2 64
link_rate 2 0; ask $((2 * slow + 1))-1000000 mbit host2 64

link_loss 2 10%; ask 280-520 lost host2
link_loss 2 0; ask 0-0 lost host2

link_delay 2 20ms; ask 40-60 ms host2; ask 40-60 ms host2-6
link_delay 3 2ms; ask 40-60 ms host2
run on 1 python3 ask.py same host2; expect_out True
link_delay 2 5ms; ask 10-30 ms host2
link_rate 2 100mbit; ask 85-115 mbit host2 8; link_rate 2 0
link_delay 2 0; ask 0-5 ms host2

# A link is cut during a conversation. say: one more round trip.
mkfifo words; exec {words}<> words
talk() { : > said; start_on 1 python3 ask.py talk host2 <words >said 2>&1; heard 1; }
say() { echo >&"$words"; }
heard() { wait_until eval "[ \"\$(wc -l < said)\" = $1 ]" || fail "said: $(cat said served)"; }
for cable in 0 1ms; do
  link_delay 2 $cable
  talk
  link_cut 2 drop; say; on 1 timeout 0.3 python3 ask.py ms host2; [ $? = 124 ] || fail "not cut"
  [ "$(wc -l < said)" = 1 ] || fail "heard across a cut"
  on 3 bash -c '! getent hosts host9' || fail "host 3"
  link_heal 2; heard 2
  link_cut 2 reset; say; heard 3
  grep -q 'reset by peer' said || fail "not reset: $(cat said)"
  link_heal 2; ask 0-9 ms host2
done
link_delay 2 0

talk; host_freeze 2; say
on 1 timeout 1.5 python3 ask.py ms host2; [ $? = 124 ] || fail "not frozen"
[ "$(wc -l < said)" = 1 ] || fail "heard from a frozen host"
host_thaw 2; heard 2
[ "$(tail -n 1 said)" -ge 300 ] || fail "thawed early: $(cat said)"
host_kill 2; say; heard 3; grep -qE 'closed|reset' said || fail "not killed: $(cat said)"
run on 2 hostname; expect_out host2
run on 1 python3 ask.py ms host2; expect_err 'Connection refused'

hosts_down
[ "$(ip -br link | wc -l)" = 1 ] || fail "left: $(ip -br link)"
hosts_up 2; run on 2 hostname; expect_out host2

# Two jobs of this machine train as sites, in Python: what happens after the sites were closed, with two outer optimizers, while
# one waits for the other, and where an address is another machine's; and how their journals are printed.
# In a network of its own, where no other test listens.
if [ -z "${OWN_NET:-}" ] && command -v ip >/dev/null && unshare --net true 2>/dev/null; then
  OWN_NET=1 exec unshare --net bash -c 'ip link set lo up && exec bash "$0"' "$0"
fi
source "$SOURCE/tests/scenario/common.sh"
need_numpy
umask 077; head -c 32 /dev/urandom | base64 >secret
ports=($("$python" - <<'P'
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in held))
P
))
list=alps=127.0.0.1:${ports[0]},sea=127.0.0.1:${ports[1]}
site() { timeout 150 dlaunch --sites "$list" --secret-file secret --site-journal journals --site-timeout 20s --site "$@" >"out.$1" 2>"err.$1"; }

cat >closes.py <<'P'
import numpy as np
import dlaunch
comm = dlaunch.init()
w = np.ones(1000, dtype="float32")
outer = dlaunch.Outer(comm, [w], inner_steps=2)
alone = dlaunch.Outer(comm, [np.ones(10, dtype="float32")], inner_steps=2, sites=False)
second = dlaunch.Outer(comm, [np.ones(10, dtype="float32")], inner_steps=2)
for _ in range(6):
    w -= 1
    outer.step()
    alone.step()
assert outer.sites.info["jumps"] == 0 and outer.sites.info["merges"] == 3, outer.sites.info
try:
    second.step()
except dlaunch.Error as error:
    print("second:", error)
outer.finish()
outer.sites.close()
for _ in range(2):
    try:
        outer.step()
        outer.step()
    except dlaunch.Error as error:
        print("closed:", error)
print("ends")
P
# A site that waits for the others does not hang, with several ranks and with one.
train_late() {  # FIRST LAST [WORKERS of the first]
  site "$1" --hang-timeout 8s --nproc "${3:-1}" "$python" closes.py & first=$!
  wait_until grep -q "waits for site $2" "err.$1" || fail "$1 does not wait"
  sleep 12  # longer than it may hang
  site "$2" --nproc 1 "$python" closes.py || fail "job $2 has failed"
  wait $first || fail "job $1 has failed"
  ! grep 'it hung' "err.$1" || fail "a site that waits seems to hang"
}
train_late alps sea
rm -r journals
train_late sea alps 2
for one in alps sea; do
  cp "out.$one" out
  expect_out 'second: .*sites=False'
  expect_out 'closed: this site has left the others, because the program has closed its sites'
  expect_out 'ends$'
done
[ "$(grep -c 'closed: ' out.sea)" = 4 ] || fail "not each rank of a site learns that its sites are closed"

# A site that has left the list is not missed.
list=alps=127.0.0.1:${ports[0]},lake=127.0.0.1:${ports[1]}
site lake "$python" closes.py & lake=$!
site alps "$python" closes.py || fail "job alps has failed"
wait $lake || fail "job lake has failed"
run "$python" -m dlaunch.journal journals/alps.journal; expect_code 0
expect_out 'merge 3, epoch [0-9]+: alps, sea: [0-9]+ bytes$'
expect_out 'merge 3, epoch [0-9]+: alps, lake: [0-9]+ bytes$'

# Entries come as they are read: one that cannot be read does not hide those before.
cat >reads.py <<'P'
from dlaunch import _core
seen = []
def take(entry):
    seen.append(entry["kind"])
    if len(seen) == 3:
        raise OverflowError(entry["sites"])
try:
    _core.read_journal("journals/alps.journal", False, take)
except OverflowError as error:
    print(seen[0], len(seen), error)
P
run "$python" reads.py; expect_code 0; expect_out "^start 3 \['alps', 'sea'\]$"

# An address of another machine.
list=alps=192.0.2.1:${ports[0]},sea=127.0.0.1:${ports[1]}
site alps "$python" closes.py & alps=$!
wait_until grep -q 'site alps: 192.0.2.1:[0-9]* is no address of this machine, which has rank 0' err.alps || fail "nobody says that the address is wrong"
pkill -P "$alps"; wait "$alps"  # timeout passes the signal on
exit 0

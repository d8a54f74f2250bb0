# The job continues whatever bytes come to the ports of dlaunch and of the ranks. dlaunch refuses a peer of
# another job, and names that job.
# In a network of its own, where no other test listens.
if [ -z "${OWN_NET:-}" ] && command -v ip >/dev/null && unshare --net true 2>/dev/null; then
  OWN_NET=1 exec unshare --net bash -c 'ip link set lo up && exec bash "$0"' "$0"
fi
source "$SOURCE/tests/scenario/common.sh"

cat > throw.py <<'P'
import os, random, socket, sys
random.seed(5)
ports = sys.argv[2:]
for i in range(int(sys.argv[1])):
    with socket.socket() as s:
        s.connect(("127.0.0.1", int(ports[i % len(ports)])))
        try:
            s.send(random.randbytes(random.randrange(200)))
        except OSError:
            pass
print("thrown")
P
# Rank 1 comes late, and the listening ports of the other ranks are open until then.
cat > worker.sh <<'W'
echo $DLAUNCH_RDZV > store.$RANK; touch up.$RANK
[ $RANK = 1 ] && until [ -e go ]; do read -rt 0.02 <> <(:); done
exec dlaunch-bench all_reduce -b 1K -e 1K -n 5
W
listening() { python3 - <<'P'
# Listening sockets on loopback of this network namespace.
for line in open("/proc/net/tcp").readlines()[1:]:
    f = line.split()
    if f[3] == "0A" and f[1].startswith("0100007F:"): print(int(f[1][9:], 16))
P
}
listening | sort > before  # ports of other programs
ours() { listening | sort | comm -13 before -; }
dlaunch --transport tcp --nproc 3 --output raw bash worker.sh >out 2>err </dev/null & started+=($!)
wait_until eval '[ -e up.0 ] && [ -e up.2 ]' || fail "workers did not start"
store=$(sed 's/.*://' store.0)
wait_until eval '[ "$(ours | wc -l)" -ge 2 ]' || fail "ranks do not listen"
timeout 150 python3 throw.py 10000 $(ours) > thrown 2>&1 || fail "$(cat thrown)"
RANK=1 WORLD_SIZE=3 DLAUNCH_RDZV=tcp://127.0.0.1:$store DLAUNCH_JOB_ID=other dlaunch-bench all_reduce 2>stray && fail "a stranger got in"
grep -q "is of job 'other'" stray || fail "refusal: $(cat stray)"
touch go; wait "${started[0]}" || fail "the job was harmed"
expect_out 'Out of bounds values : 0 OK'; expect_err "is of job 'other'"

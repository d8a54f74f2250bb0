# stdout and stderr stay apart, filters work, time stamps have milliseconds, and progress bars print few lines.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 2 sh -c 'echo to out; echo to err >&2'
expect_out '^\[1\] to out$'; expect_err '^\[1\] to err$'
grep -q 'to err' out && fail "stderr on stdout"

run dlaunch --nproc 6 --only-rank 0,2-3 sh -c 'echo $RANK'
[ "$(sort out | tr '\n' ' ')" = "[0] 0 [2] 2 [3] 3 " ] || fail "filter: $(cat out)"

run dlaunch --nproc 1 --timestamps echo hi
expect_out '^20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3} \[0\] hi$'

run dlaunch --nproc 2 --output raw echo plain
[ "$(cat out)" = "$(printf 'plain\nplain')" ] || fail "raw: $(cat out)"

run dlaunch --nproc 2 --output none sh -c 'echo x; echo why >&2; exit 1'
[ ! -s out ] || fail "none shows something"
expect_err 'why'  # the report still quotes stderr

# From a thousand states of a bar dlaunch prints the first, the last, and hardly more.
run dlaunch --nproc 1 bash -c 'for i in $(seq 1000); do printf "\r%d/1000" $i; done; printf "\ndone\n"'
expect_out '^\[0\] 1000/1000$'; expect_out '^\[0\] done$'
[ "$(wc -l < out)" -le 8 ] || fail "the bar took $(wc -l < out) lines"

# The job survives a reader that goes away. A slow reader loses nothing.
dlaunch --nproc 2 sh -c 'seq 100000; echo $RANK >> ended' 2>err </dev/null | head -n1 >/dev/null
[ "$(wc -l < ended)" = 2 ] || fail "workers ended with their reader"
lines=$(dlaunch --nproc 2 seq 300000 2>err </dev/null | { read -rt 0.5 <> <(:); wc -l; })
[ "$lines" = 600000 ] || fail "a slow reader got $lines lines"

# A socket as stdin or stdout keeps its flags, even if dlaunch waits for it, because other programs share it.
cat > flags.py <<'P'
import fcntl, os, socket, subprocess, sys
def blocks(s):
    return not fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK
ours, theirs = socket.socketpair()
job = subprocess.Popen(["dlaunch", "--nproc", "1", "--output", "prefix", "sh", "-c", "yes 0123456789 | head -c 4000000"],
                       stdin=subprocess.DEVNULL, stdout=theirs)
got, always = 0, True
while job.poll() is None:
    ours.settimeout(0.2)
    try:
        got += len(ours.recv(1 << 16))
    except TimeoutError:
        pass
    always = always and blocks(theirs)
theirs.close()
while data := ours.recv(1 << 16):
    got += len(data)
if got < 4000000 or job.returncode != 0 or not always:
    sys.exit(f"{got} bytes, exit code {job.returncode}, blocking all the time: {always}")
ours, theirs = socket.socketpair()
ours.sendall(b"line\n" * 1000)
ours.shutdown(socket.SHUT_WR)
out = subprocess.run(["dlaunch", "--nproc", "2", "--stdin", "all", "cat"], stdin=theirs, capture_output=True)
if out.stdout.count(b"line") != 2000 or not blocks(theirs):
    sys.exit(f"{out.stdout.count(b'line')} lines, blocking: {blocks(theirs)}")
P
run python3 flags.py
expect_code 0

# On a terminal: colours are only for the terminal, its flags do not change, a question appears before its
# answer is read, and a background job neither stops nor loses the user's input.
source "$SOURCE/tests/scenario/common.sh"
unset NO_COLOR; export TERM=xterm

cat > on_terminal.py <<'P'
"""Runs a command with a new terminal as stdin, stdout and (unless `err` is there) stderr."""
import fcntl, os, pty, sys
pid, master = pty.fork()
if pid == 0:
    if sys.argv[1] != "-":
        os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)
    flags = [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (0, 1)]
    code = os.spawnvp(os.P_WAIT, sys.argv[2], sys.argv[2:])
    if [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (0, 1)] != flags:
        print("the flags have changed")
    os._exit(code)
while True:
    try:
        text = os.read(master, 65536)
    except OSError:
        break
    sys.stdout.buffer.write(text)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
P
say='echo out; echo err >&2'
run python3 on_terminal.py - dlaunch --nproc 2 sh -c "$say"
expect_code 0
grep -q $'^\e\\[36m\\[0\\]\e\\[0m out' out || fail "no colour for rank 0"
grep -q $'^\e\\[33m\\[1\\]\e\\[0m err' out || fail "no colour for rank 1's stderr"
grep -q 'the flags' out && fail "the terminal's flags"
run python3 on_terminal.py plain dlaunch --nproc 1 sh -c "$say"
[ "$(cat plain)" = "[0] err" ] || fail "colours in a file: $(cat -v plain)"
NO_COLOR=1 run python3 on_terminal.py - dlaunch --nproc 1 sh -c "$say"
grep -q $'\e' out && fail "colours in spite of NO_COLOR"
# A colour that a worker sets does not continue in the next line.
run python3 on_terminal.py - dlaunch --nproc 1 printf '\033[31mred\nplain\n'
grep -q $'red\e\\[0m' out || fail "the worker's colour runs on: $(cat -v out)"

cat > in_background.py <<'P'
"""dlaunch in the background of a terminal where something is typed; then it is brought to the front."""
import os, pty, select, signal, sys, time
pid, master = pty.fork()
if pid == 0:  # the session's leader, like a shell
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    go, ready = os.pipe()
    job = os.fork()
    if job == 0:
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.setpgid(0, 0)
        os.read(go, 1)
        os.execvp("dlaunch", ["dlaunch", "--nproc", "1", "sh", "-c", "echo up; read line; echo got $line"])
    os.setpgid(job, job)
    os.write(1, b"job %d;" % job)
    os.write(ready, b"x")
    signal.signal(signal.SIGUSR1, lambda *_: os.tcsetpgrp(0, job))  # like bash's fg of a running job
    while True:
        try:
            ended, status = os.waitpid(job, os.WUNTRACED)
        except InterruptedError:
            continue
        if os.WIFSTOPPED(status):
            os.write(1, b"STOPPED\n")
            os.killpg(job, signal.SIGKILL)
        else:
            os._exit(os.waitstatus_to_exitcode(status) & 255)
seen = b""
def read_until(*words):
    global seen
    while not any(word in seen for word in words):
        if not select.select([master], [], [], 60)[0]:
            sys.exit(f"nothing comes; seen: {seen}")
        try:
            seen += os.read(master, 4096)
        except OSError:
            sys.exit(f"ended; seen: {seen}")
read_until(b"[0] up", b"\x1b[0m up")
os.write(master, b"typed\n")
read_until(b"typed")  # the terminal's echo: now the input can be read
# dlaunch tried to read the input, got EIO, and tries again.
job = seen.split(b"job ")[1].split(b";")[0].decode()
agent = open(f"/proc/{job}/task/{job}/children").read().split()[0]
def reads():
    return int(open(f"/proc/{agent}/io").read().split("syscr: ")[1].split()[0])
enough = reads() + 2
deadline = time.monotonic() + 60
while reads() < enough:
    if time.monotonic() > deadline:
        sys.exit("dlaunch does not wait for the foreground")
    select.select([], [], [], 0.01)
os.kill(pid, signal.SIGUSR1)
read_until(b"got typed", b"STOPPED")
sys.exit(0 if b"STOPPED" not in seen else f"stopped; seen: {seen}")
P
run python3 in_background.py
expect_code 0

cat > asks.py <<'P'
"""A worker that asks for a name at a terminal, while another one may say something in between."""
import os, pty, select, sys, time
pid, master = pty.fork()
if pid == 0:
    os.execvp("dlaunch", ["dlaunch", "--nproc", "2", "sh", "-c", """
      if [ $RANK = 0 ]; then printf 'name? '; read name; echo "hello $name"; printf 'age? '; read age; printf bye
      else while [ ! -e speak ]; do sleep 0.02; done; echo word; fi"""])
seen = b""
def read_until(word):
    global seen
    deadline = time.monotonic() + 60
    while word not in seen:
        if not select.select([master], [], [], max(0, deadline - time.monotonic()))[0]:
            sys.exit(f"no {word}; seen: {seen}")
        try:
            seen += os.read(master, 4096)
        except OSError:
            sys.exit(f"ended without {word}; seen: {seen}")
read_until(b"[0] name? ")
os.write(master, b"bob\n")
read_until(b"[0] name? bob\r\n[0] hello bob\r\n[0] age? ")
open("speak", "w").close()
read_until(b"[0] age? \r\n[1] word\r\n")  # output of another rank begins a new line
os.write(master, b"7\n")
read_until(b"\n[0] bye\r\n")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
P
NO_COLOR=1 run python3 asks.py
expect_code 0

# ^Z stops the workers and dlaunch, and prints nothing on the shell's prompt. fg continues them. dlaunch reports
# a worker that another program stops.
cat > suspend.py <<'P'
import glob, os, signal, sys
import shell_on_terminal as shell
def state(worker):
    return open(f"/proc/{worker}/stat").read().rsplit(") ")[-1][0]
shell.until("prompt", lambda: b"prompt> " in shell.seen)
shell.type_in(b"dlaunch --nproc 2 bash -c 'echo $$ >.$RANK; mv .$RANK pid.$RANK; while :; do sleep 0.1; done'\n")
shell.until("started", lambda: len(glob.glob("pid.*")) == 2)
workers = [int(open(f"pid.{rank}").read()) for rank in (0, 1)]
shell.type_in(b"\x1a")
shell.until("stopped", lambda: b"Stopped" in shell.seen and all(state(w) == "T" for w in workers))
shell.read_on(2)  # the time in which a late message could come
if b"is stopped" in shell.seen or b"are stopped" in shell.seen:
    sys.exit(f"dlaunch warned about the user's own ^Z; seen: {shell.seen}")
shell.type_in(b"fg\n")
shell.until("continued", lambda: all(state(w) != "T" for w in workers))
shell.read_on(1)
if b"no longer stopped" in shell.seen:
    sys.exit(f"dlaunch warned about the user's own fg; seen: {shell.seen}")
os.kill(workers[1], signal.SIGSTOP)
shell.until("a warning about a stop by somebody else", lambda: b"rank 1 is stopped" in shell.seen)
os.kill(workers[1], signal.SIGCONT)
shell.type_in(b"\x03")
shell.until("ended", lambda: not any(os.path.exists(f"/proc/{w}") for w in workers))
shell.leave()
P
PYTHONPATH=$SOURCE/tests/scenario run python3 -B suspend.py
expect_code 0

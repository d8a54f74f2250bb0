"""An interactive shell on a new terminal, for scripts that stop and continue a job there: `seen` is what has appeared."""
import os, pty, select, sys, time

pid, master = pty.fork()
if pid == 0:
    os.environ["PS1"] = "prompt> "
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
seen = b""


def type_in(keys):
    os.write(master, keys)


def read_for(seconds):
    """Reads for so long at most, until something comes."""
    global seen
    if select.select([master], [], [], seconds)[0]:
        seen += os.read(master, 4096)


def read_on(seconds):
    """Reads what comes within that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        read_for(0.1)


def until(what, condition):
    """Reads until the condition holds; `what` says which one."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not {what}; seen: {seen}")
        read_for(0.02)


def leave():
    type_in(b"exit\n")
    os.waitpid(pid, 0)

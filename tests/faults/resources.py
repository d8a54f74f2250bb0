"""Ports, descriptors, disks and strangers, by the numbers of FAULTS.md."""

import os
import re
import resource
import select
import socket
import subprocess
import time

from job import PATIENCE, Broken, Skipped, footprint, targets

CASES = {}


def case(number):
    def add(function):
        CASES[number] = function
        return function

    return add


# -- Strangers


def ports_of(pids):
    """TCP ports on which they listen."""
    found = set()
    for pid in pids:
        sockets = set(targets(pid))
        with open(f"/proc/{pid}/net/tcp") as table:
            for line in table.readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    found.add(int(words[1].split(":")[1], 16))
    return sorted(found)


def greetings(random):
    return [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"\xff\xff\xff\x7f" * 4, b"\x00\x00\x00\x80" * 4, random.randbytes(random.randrange(1, 300)),
            b""]


@case(33)
def strangers(start, random):
    """HTTP, TLS, huge lengths, noise, a drip and a silent crowd at every port and socket"""
    job = start(["--step-ms", "1"], launcher=["--transport", "tcp"])
    of = job.settled()
    memory = footprint(job.agent)[1]
    ports = ports_of([job.agent, *of.pids.values()])
    if not ports:
        raise Broken("the store does not listen")
    crowd, waiting = [], []
    for port in ports:
        for greeting in greetings(random) * 5 + [b""] * 200:
            stranger = socket.create_connection(("127.0.0.1", port), 5)
            stranger.setblocking(False)
            try:
                stranger.send(greeting)
            except OSError:
                pass
            (crowd if greeting else waiting).append(stranger)
    for name in ("agent", "control"):
        for path in [os.path.join(folder, name) for folder, _, files in os.walk(job.tmp) if name in files]:
            for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
                knock(path, kind, random)
    end = time.monotonic() + 10
    drip = waiting.pop()
    while time.monotonic() < end and crowd + waiting + [drip]:
        for group in (crowd, waiting):
            group[:] = [stranger for stranger in group if not is_closed(stranger)]
        if not crowd and not waiting:
            break
        try:
            drip.send(b"x")
        except OSError:
            pass
        time.sleep(0.1)
    left = len(crowd) + len(waiting)
    if left:
        raise Broken(f"{left} strangers are still listened to after 10 s")
    of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))))
    grown = footprint(job.agent)[1] - memory
    if grown > 3000:
        raise Broken(f"the agent has grown by {grown} KiB")
    job.finish()
    if len(job.rounds) != 2:
        raise Broken(f"rounds {sorted(job.rounds)} after one death")


def is_closed(stranger):
    look = select.poll()  # select() takes no descriptor above 1,023
    look.register(stranger, select.POLLIN)
    if not look.poll(0):
        return False
    try:
        return not stranger.recv(4096)
    except OSError:
        return True


def knock(path, kind, random):
    for greeting in greetings(random):
        with socket.socket(socket.AF_UNIX, kind) as stranger:
            try:
                stranger.connect(path)
                stranger.send(greeting)
            except OSError:
                return


# -- Ports


def four_free_ports(random):
    while True:
        base = random.randrange(20000, 30000)
        held = [socket.socket() for _ in range(4)]
        try:
            for offset, one in enumerate(held):
                one.bind(("127.0.0.1", base + offset))
            return base
        except OSError:
            continue
        finally:
            for one in held:
                one.close()


@case(35)
def few_ports(start, random):
    """no more ports than ranks, in every round; then one too few"""
    base = four_free_ports(random)
    limits = ["--transport", "tcp", "--port-range"]
    job = start(["--step-ms", "1"], launcher=[*limits, f"{base}-{base + 3}"])
    of = job.settled()
    for _ in range(3):
        of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))))
    job.finish()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base))
        taken.listen()
        job = start(["--step-ms", "1"], launcher=[*limits, f"{base}-{base + 3}"], restarts="0")
        job.finish(codes=(1,))
    if not re.search(r"no free port|Address already in use|port", job.errors()):
        raise Broken(f"not told\n{job.errors()}")


# -- Descriptors


@case(36)
def few_descriptors(start, random):
    """hardly any descriptors, at the start or from some moment on"""
    if random.random() < 0.5:
        limit = random.randrange(8, 80)
        job = start(["--step-ms", "1"], before=["prlimit", f"--nofile={limit}:{limit}"])
        ends_somehow(job)
        return
    job = start(["--step-ms", "1"], launcher=["--transport", random.choice(["auto", "tcp"])])
    of = job.settled()
    whom = random.choice([job.agent, *of.pids.values()])
    has = len(os.listdir(f"/proc/{whom}/fd"))
    limit = max(0, has + random.choice([-2, 0, 1, 2, 5]))
    resource.prlimit(whom, resource.RLIMIT_NOFILE, (limit, limit))
    job.struck.update(of.pids.values())
    job.strike(random.choice(list(of.pids.values())))
    before = spent = cpu_seconds(job.agent)
    begin = time.monotonic()

    def look():
        nonlocal spent
        spent = max(spent, cpu_seconds(job.agent))

    ends_somehow(job, meanwhile=look)
    if spent - before > 0.5 * (time.monotonic() - begin) + 0.5:
        raise Broken("the agent spins")


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            words = stat.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def ends_somehow(job, meanwhile=lambda: None):
    """Goes on, or ends with words."""
    open(job.until, "w").close()
    end = time.monotonic() + PATIENCE
    while job.process.poll() is None:
        meanwhile()
        if time.monotonic() > end:
            raise Broken(f"hangs; {job.states()}\n{job.errors()}")
        time.sleep(0.01)
    code = job.process.returncode
    job.read()
    if code == 0:
        job.check_rounds(False)
        job.check_results()
    elif len(job.errors()) < 20:
        raise Broken(f"ended with code {code} and no words")
    job.check_leftovers()


# -- Disks


def fill(path):
    """Until no space is left, or no inode."""
    try:
        with open(path, "wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
    except OSError:
        pass


@case(38)
def full_disk(start, random):
    """a full disk for log files, for the job's folder, for snapshots"""
    what = random.choice(["logs", "folder", "snapshots"])
    disk = start.folder()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=24", "faults", disk],
                      capture_output=True).returncode != 0:
        raise Skipped("cannot mount a small disk")
    start.at_end(lambda: subprocess.run(["umount", "-l", disk], check=False))
    if what == "logs":
        job = start(["--step-ms", "1"], launcher=["--log-dir", f"{disk}/logs"],
                    wrap=["sh", "-c", 'yes "$RANK" | head -c 300000; exec "$0" "$@"'])
    elif what == "folder":
        job = start(["--step-ms", "1"], env={"TMPDIR": disk})
    else:
        job = start(["--step-ms", "1", "--size", "20000", "--snapshot", f"{disk}/snapshots"])
    try:
        of = job.settled()
    except Broken:
        if what != "folder":
            raise
        return ends_somehow(job)
    if what == "folder":
        fill(f"{disk}/filler")
    for _ in range(3):
        some = list(of.pids.values())
        job.struck.update(some)
        job.strike(random.choice(some))
        try:
            of = job.settled(of.number)
        except Broken as why:
            if what != "folder" or "dlaunch ended" not in str(why):
                raise
            return ends_somehow(job)
    job.finish(keeps=False)
    if what != "folder" and "No space left" not in job.errors():
        raise Broken(f"that the disk is full is not told\n{job.errors()}")

"""One job under test: dlaunch with tests/support/elastic_worker. Follows what its ranks log, hurts its
processes, and checks at its end what has to hold whatever was done to it."""

import collections
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds; who takes longer hangs


class Broken(Exception):
    """What should never be: a hang, a wrong result, a leftover."""


class Skipped(Exception):
    """This machine cannot do it."""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def processes_of(word):
    """The processes whose environment holds that word."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if word.encode() in file.read() and alive(pid):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def footprint(pid):
    """Memfds among its mappings, and resident KiB."""
    with open(f"/proc/{pid}/maps") as maps:
        memfds = len({line.split()[4] for line in maps if "/memfd:" in line})
    with open(f"/proc/{pid}/status") as status:
        resident = int(re.search(r"VmRSS:\s*(\d+)", status.read()).group(1))
    return memfds, resident


def targets(pid):
    """What each of its descriptors is."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            continue  # closed by now
    return found


def descriptors(pid):
    """The same, without numbers."""
    return collections.Counter(re.sub(r"\d+", "", target) for target in targets(pid))


def belongs_to(pid, word):
    """That process runs, with that word in its environment: none is there in the middle of an exec."""
    while alive(pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            return False
        if environment:
            return word.encode() in environment
        time.sleep(0.0001)
    return False


def strike(pid, word, number=signal.SIGKILL):
    """A signal to that process, if it still is one of those with that word in their environment."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not belongs_to(pid, word):
            return False
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def wait_for(what, condition, seconds=PATIENCE, broken=lambda: None):
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        broken()
        if time.monotonic() > end:
            raise Broken(f"{what}: not within {seconds} s")
        time.sleep(0.001)


class Round:
    def __init__(self, number, size):
        self.number, self.size = number, size
        self.pids, self.steps, self.members = {}, {}, {}  # by rank

    def settled(self):
        return len(self.members) == self.size


class Job:
    """`worker` and `launcher` are lists of arguments. `wrap` is put before the program."""

    def __init__(self, build, worker=(), launcher=(), ranks=4, spares=0, wrap=(), env=None,
                 restarts="1000", before=(), **popen):
        self.build, self.worker = build, list(worker)
        self.folder = tempfile.mkdtemp(prefix="dl-faults-")
        self.tmp = os.path.join(self.folder, "tmp")
        os.mkdir(self.tmp)
        self.until = os.path.join(self.folder, "until")
        self.log = os.path.join(self.folder, "log")
        open(self.log, "w").close()
        self._log, self._rest = open(self.log, "rb"), b""
        self.started, self.dying, self.rounds, self.struck = [], [], {}, set()
        self.opened = {}  # by process and size of the round: its descriptors and memfds
        self.out, self.err = (os.path.join(self.folder, name) for name in ("out", "err"))
        program = [os.path.join(build, "tests/support/elastic_worker"), "--log", self.log,
                   "--steps", "1000000000", "--until", self.until] + self.worker
        environment = {**os.environ, "TMPDIR": self.tmp, "OMP_NUM_THREADS": "1",
                       "FAULTS_JOB": self.folder, **(env or {})}
        for name in [name for name in environment if name.startswith("DLAUNCH_")]:
            del environment[name]
        popen.setdefault("stdout", open(self.out, "w"))
        self.process = subprocess.Popen(
            # Under nohup, which these tests may be, dlaunch rightly ignores SIGHUP.
            ["env", "--default-signal=HUP", *before, os.path.join(build, "cli/dlaunch"), "--nproc", str(ranks),
             "--spares", str(spares), "--max-restarts", restarts, *launcher, *wrap, *program],
            stdin=subprocess.DEVNULL, stderr=open(self.err, "w"), env=environment, **popen)
        self.keeper, self.agent = self.process.pid, None

    # -- What happens in it

    def read(self):
        *lines, self._rest = (self._rest + self._log.read()).split(b"\n")
        for line in lines:
            words = line.decode().split()
            if words[0] in ("start", "dies"):
                (self.started if words[0] == "start" else self.dying).append(int(words[2]))
                continue
            number, rank = int(words[1]), int(words[3])
            if words[0] == "round":
                of = self.rounds.setdefault(number, Round(number, int(words[5])))
                if of.size != int(words[5]) or of.pids.setdefault(rank, int(words[7])) != int(words[7]):
                    raise Broken(f"ranks of round {number} do not agree: {line.decode()}")
                of.steps[rank] = int(words[9])
            else:
                self.rounds[number].members[rank] = [int(pid) for pid in words[5].split(",")]

    def errors(self):
        with open(self.err, errors="replace") as file:
            return file.read()

    def ended(self):
        self.read()
        if self.process.poll() is not None:
            raise Broken(f"dlaunch ended with code {self.process.returncode}:\n{self.errors()}")

    def wait_for(self, what, condition, seconds=PATIENCE):
        def look():
            self.read()
            return condition()

        return wait_for(what, look, seconds, self.ended)

    def settled(self, after=0, size=None):
        """The newest round, later than that, that all of its members have begun."""

        def newest():
            of = self.rounds.get(max(self.rounds, default=0))
            return of if of and of.number > after and of.settled() and size in (None, of.size) else None

        of = self.wait_for(f"a round after {after}", newest)
        if self.agent is None:
            self.agent = children(self.keeper)[0]
        return of

    def first(self):
        """The first round, once all of its members have begun it; a later one may run by now."""
        self.settled()
        return self.rounds[1]

    def spares(self):
        """Processes of the program that run and are in no round."""
        self.read()
        members = {pid for of in self.rounds.values() for pid in of.pids.values()}
        return [pid for pid in self.started if pid not in members and alive(pid)]

    def strike(self, pid, number=signal.SIGKILL):
        """A signal to that process, if it is still this job's."""
        done = strike(pid, self.folder, number)
        if done and number == signal.SIGKILL:
            self.struck.add(pid)
        return done

    def strikes(self, pids, number=signal.SIGKILL):
        """All at once: who is to be killed gets no further while another one is."""
        if number == signal.SIGKILL and len(pids) > 1:
            self.strikes(pids, signal.SIGSTOP)
        for pid in pids:
            self.strike(pid, number)

    def recovers(self, of, act, size=None):
        """The round after that one, to which `act` leads. Survivors have as many descriptors and as
        much shared memory as when this job first had a round of that size."""
        # The first message of a round, such as a newcomer's state, needs a thread with two eventfds, and a socket to
        # the other rank.
        messages = collections.Counter({"anon_inode:[eventfd]": 2, "socket:[]": of.size - 1})
        before = {pid: self.opened.setdefault((pid, of.size), (descriptors(pid) + messages, footprint(pid)[0]))
                  for pid in of.pids.values() if pid not in self.struck}
        act()
        after = self.settled(of.number, size)
        for pid, (fds, memfds) in before.items():
            if pid not in after.pids.values():
                continue
            wait_for(f"pid {pid} has more open than before: {descriptors(pid) - fds}",
                     lambda: descriptors(pid) <= fds and footprint(pid)[0] <= memfds, 5)
        return after

    # -- Its end

    def finish(self, codes=(0,), keeps=True, loses=False):
        """Lets the last step come, or only waits where a code other than 0 is expected. `keeps`:
        who was not struck has kept its process. `loses`: the state may have been lost."""
        if 0 in codes:
            open(self.until, "w").close()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Broken(f"hangs; {self.states()}\n{self.errors()}") from None
        self.read()
        if code not in codes:
            raise Broken(f"exit code {code}, expected {codes}:\n{self.errors()}")
        self.check_rounds(loses)
        if code == 0:
            self.check_results()
            if keeps:
                self.check_survivors()
        self.check_leftovers()
        return code

    def states(self):
        return ", ".join(f"{pid}: {'runs' if alive(pid) else 'gone'}"
                         for pid in [self.keeper, self.agent, *self.started] if pid)

    def check_rounds(self, loses):
        """Equal members on all who were in; a step that all have in common, never an earlier one."""
        step = 0
        for number in sorted(self.rounds):
            of = self.rounds[number]
            if len(set(of.steps.values())) > 1:
                raise Broken(f"round {number} begins with steps {of.steps}")
            redone = 1 if "--shard" in self.worker else 0
            if min(of.steps.values()) < step - redone and not loses:
                raise Broken(f"round {number} begins with step {of.steps}, one before it with {step}")
            step = max(step, *of.steps.values())
            for rank, pids in of.members.items():
                other = {r: pid for r, pid in enumerate(pids) if of.pids.get(r, pid) != pid}
                if len(pids) != of.size or other or len(set(map(tuple, of.members.values()))) > 1:
                    raise Broken(f"round {number}: members {of.members}, logged {of.pids}")

    def check_results(self):
        with open(self.out, errors="replace") as file:
            ends = re.findall(r"rank (\d+) of (\d+): step (\d+), result ([0-9a-f]+)", file.read())
        if len(ends) == 0 or len(ends) != int(ends[0][1]) or len({end[1:] for end in ends}) != 1:
            raise Broken(f"the ranks' results: {ends}")
        alone = [os.path.join(self.build, "tests/support/elastic_worker"), "--steps", ends[0][2]]
        for flag, value in zip(self.worker[::2], self.worker[1::2]):
            if flag in ("--size", "--shard"):
                alone += [flag, value]
        said = subprocess.run(alone, capture_output=True, text=True, timeout=PATIENCE * 5).stdout
        if said.split()[-1:] != [ends[0][3]]:
            raise Broken(f"the result is {ends[0][3]}, undisturbed it is {said}")

    def check_survivors(self):
        last = self.rounds[max(self.rounds)]
        for of in self.rounds.values():
            for rank, pid in of.pids.items():
                if pid not in self.struck and last.pids.get(rank) != pid:
                    raise Broken(f"rank {rank}, pid {pid} of round {of.number}, is not in the last one\n"
                                 f"{self.errors()}")

    def check_leftovers(self):
        wait_for(f"the end of {processes_of(self.folder)}", lambda: not processes_of(self.folder), 5)
        if os.listdir(self.tmp):
            raise Broken(f"left in TMPDIR: {os.listdir(self.tmp)}")

    def clean(self, keep_folder=False):
        """Whatever state it is in."""
        for _ in range(100):
            left = processes_of(self.folder)
            if not left:
                break
            self.strikes(left)
            time.sleep(0.01)
        self.process.wait(PATIENCE)
        self._log.close()
        if keep_folder:
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder)


def wait_for_end(pids, seconds):
    """Seconds until the last of them has ended."""
    begin, waiting = time.monotonic(), []
    for pid in pids:
        try:
            waiting.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    try:
        for process in waiting:
            if not select.select([process], [], [], seconds)[0]:
                raise Broken(f"one of {pids} lives {seconds} s later")
    finally:
        for process in waiting:
            os.close(process)
    return time.monotonic() - begin

"""What happens to a job, and what must come of it, by the numbers of FAULTS.md. Each case gets a
function that starts a job, and a source of random numbers that its seed determines."""

import os
import signal
import subprocess
import time

from job import Broken, Skipped, children, wait_for, wait_for_end

CASES = {}  # by number: function, its docstring is the name


def case(number):
    def add(function):
        CASES[number] = function
        return function

    return add


def anyhow(random):
    """Terms under which all of this has to hold."""
    return {"spares": random.choice([0, 1]), "ranks": random.choice([4, 4, 4, 8]),
            "launcher": ["--transport", random.choice(["auto", "tcp"])]}


def some_ms(random, most):
    time.sleep(random.uniform(0, most / 1000))


# -- Workers that die


@case(1)
def inside_an_operation(start, random):
    """killed in the middle of an all_reduce"""
    job = start(["--size", "1000000"], **anyhow(random))
    of = job.settled()
    for _ in range(3):
        some_ms(random, 30)
        of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))))
    job.finish()


@case(2)
def between_operations(start, random):
    """killed while it computes"""
    job = start(["--size", "10", "--step-ms", "20"], **anyhow(random))
    of = job.settled()
    for _ in range(3):
        some_ms(random, 30)
        of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))))
    job.finish()


@case(3)
def several_at_once(start, random):
    """several are killed at once, all but one in the end"""
    job = start(["--step-ms", "1"], **anyhow(random))
    of = job.settled()
    ranks = of.size
    for count in (2, 2, ranks - 1):
        some_ms(random, 30)
        first = random.randrange(ranks)
        victims = [of.pids[(first + i) % ranks] for i in range(count)]
        begun = set(job.rounds)
        of = job.recovers(of, lambda: job.strikes(victims))
        if set(job.rounds) - begun != {of.number}:
            raise Broken(f"{count} deaths at once led to rounds {set(job.rounds) - begun}")
    job.finish()


@case(5)
def same_failure(start, random):
    """the same failure at the same step, in whichever process"""
    step = random.randrange(20, 60)
    job = start(["--step-ms", "1", "--die-at", f"{step}:{random.randrange(4)}:all", "--death", "exit"])
    job.finish(codes=(3,))
    for words in ("no restart: the same failure as in round", "a batch that nobody can read"):
        if words not in job.errors():
            raise Broken(f"not told: {words}\n{job.errors()}")


@case(11)
def ways_to_die(start, random):
    """wrong pointer, abort, stack overflow, exception, exit code"""
    ways = {"segv": "SIGSEGV", "abort": "SIGABRT", "stack": "SIGSEGV", "throw": "nobody catches this",
            "exit": "exit code 3"}
    death = random.choice(sorted(ways))
    rank = random.randrange(4)
    job = start(["--die-at", f"{random.randrange(5, 100)}:{rank}", "--death", death, "--step-ms", "1"],
                spares=random.choice([0, 1]))
    job.struck.add(job.first().pids[rank])
    job.settled(after=1)
    job.finish()
    if ways[death] not in job.errors():
        raise Broken(f"{death} is not told as {ways[death]}\n{job.errors()}")


@case(12)
def out_of_memory(start, random):
    """no memory: malloc says so, or the kernel kills"""
    rank = random.randrange(4)
    dies = ["--die-at", f"{random.randrange(20, 60)}:{rank}", "--step-ms", "1", "--death"]
    job = start([*dies, "memory"])
    job.struck.add(job.first().pids[rank])
    job.settled(after=1)
    job.finish()
    if "bad_alloc" not in job.errors():
        raise Broken(f"not told\n{job.errors()}")
    group = f"/sys/fs/cgroup/memory/dl-faults-{os.getpid()}"
    try:
        os.mkdir(group)
        with open(f"{group}/memory.limit_in_bytes", "w") as limit:
            limit.write("400M")
    except OSError as error:
        raise Skipped(f"no memory cgroup: {error}") from error
    try:
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"']
        job = start([*dies, "eat"], before=enter)
        job.struck.add(job.first().pids[rank])
        job.settled(after=1)
        job.finish(keeps=False)  # the kernel chooses whom it kills
        if "killed by SIGKILL (out of memory)" not in job.errors():
            raise Broken(f"the kernel's kill is not told\n{job.errors()}")
    finally:
        wait_for("the cgroup is empty", lambda: not open(f"{group}/cgroup.procs").read(), 10)
        os.rmdir(group)


# -- Processes that stand


@case(6)
def stands_for_a_moment(start, random):
    """a worker stands for a second"""
    job = start(["--step-ms", "1"], ranks=4, launcher=["--hang-timeout", "60s"])
    of = job.settled()
    victim = random.choice(list(of.pids.values()))
    job.strike(victim, signal.SIGSTOP)
    job.wait_for("a warning", lambda: "is stopped" in job.errors())
    time.sleep(1)
    job.strike(victim, signal.SIGCONT)
    job.wait_for("the report of its end", lambda: job.errors().count("\n") > 1)
    job.finish()
    lines = [line for line in job.errors().splitlines() if line]
    if list(job.rounds) != [1] or len(lines) != 2:
        raise Broken(f"rounds {list(job.rounds)}; more than a warning and its end:\n{job.errors()}")


@case(14)
def agent_stands(start, random):
    """the agent stands while a worker dies"""
    job = start(["--step-ms", "1"], **anyhow(random))
    of = job.settled()
    job.strike(job.agent, signal.SIGSTOP)
    victim = random.choice(list(of.pids.values()))
    job.strike(victim)
    time.sleep(random.uniform(0.1, 0.5))
    job.read()
    if max(job.rounds) != of.number:
        raise Broken("a round without the agent")
    job.strike(job.agent, signal.SIGCONT)
    job.settled(of.number)
    job.finish()


@case(29)
def never_joins(start, random):
    """a newcomer that stands before it joins, or soon after, and never goes on"""
    job = start(["--step-ms", "1"], launcher=["--join-timeout", "3s", "--hang-timeout", "5s"])
    of = job.settled()
    members = set(of.pids.values())
    job.strike(random.choice(sorted(members)))
    newcomers = job.wait_for("a newcomer", lambda: set(children(job.agent)) - members)
    some_ms(random, 10)
    job.strikes(newcomers, signal.SIGSTOP)
    job.struck.update(newcomers)
    job.wait_for("a round without it", lambda: newcomers.isdisjoint(job.settled(of.number).pids.values()))
    job.finish()


@case(40)
def all_stand(start, random):
    """every process of the job stands for longer than --hang-timeout, as when a machine sleeps"""
    job = start(["--step-ms", "1"], launcher=["--hang-timeout", "5s"])  # nobody is late for so long
    of = job.settled()
    everybody = [job.keeper, job.agent, *of.pids.values()]
    random.shuffle(everybody)
    job.strikes(everybody, signal.SIGSTOP)
    time.sleep(6)
    random.shuffle(everybody)
    job.strikes(everybody, signal.SIGCONT)
    time.sleep(1)
    job.finish()
    if list(job.rounds) != [1]:
        raise Broken(f"somebody was replaced:\n{job.errors()}")


# -- The launcher's own


@case(13)
def agent_killed(start, random):
    """the agent is killed"""
    job = start(["--step-ms", "1"], **anyhow(random))
    of = job.settled()
    some_ms(random, 100)
    if random.random() < 0.5:
        job.strike(random.choice(list(of.pids.values())))
        some_ms(random, 20)
    job.strike(job.agent)
    job.ends_after = wait_for_end(of.pids.values(), 5)
    job.finish(codes=(70,))


@case(44)
def told_to_end(start, random):
    """a signal to dlaunch, often in the middle of a recovery"""
    job = start(["--step-ms", "1"], **anyhow(random))
    of = job.settled()
    some_ms(random, 50)
    if random.random() < 0.7:
        job.strikes(random.sample(list(of.pids.values()), random.choice([1, 2])))
        some_ms(random, 20)
    number = random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    job.strike(job.keeper, number)
    if random.random() < 0.3:
        time.sleep(0.12)
        job.strike(job.keeper, number)
    job.finish(codes=(128 + number,))


@case(48)
def down_to_the_least(start, random):
    """fewer and fewer, to --min-nproc and below"""
    job = start(["--step-ms", "1", *random.choice([[], ["--shard", "1003"]])], restarts="0",
                launcher=["--min-nproc", "2"])
    of = job.settled(size=4)
    for left in (3, 2):
        some_ms(random, 30)
        of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))), size=left)
    if random.random() < 0.5:
        job.finish(keeps=False)
        return
    job.strike(random.choice(list(of.pids.values())))
    job.finish(codes=(137,))


# -- What workers do


@case(37)
def interrupted_calls(start, random):
    """signals interrupt every system call, while workers die"""
    worker = ["--alarm-us", str(random.choice([200, 500, 1000])), "--size", "200000"]
    job = start(worker, **anyhow(random))
    of = job.settled()
    for _ in range(2):
        some_ms(random, 100)
        of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))))
        for _ in range(5):
            job.strike(job.agent, signal.SIGSTOP)
            job.strike(job.agent, signal.SIGCONT)
    job.finish()


@case(41)
def leaves_children(start, random):
    """a lost worker's children in other sessions go with it, those of the others stay"""
    kids = 'setsid sh -c "echo \\$\\$ >> \\$KIDS.$$; exec sleep 1000" & ' \
           '(setsid sh -c "echo \\$\\$ >> \\$KIDS.$$; exec sleep 1000" &) ; ' \
           'until [ "$(wc -l 2>/dev/null < "$KIDS.$$")" = 2 ]; do :; done; exec "$0" "$@"'
    folder = start.folder()
    job = start(["--step-ms", "1"], wrap=["bash", "-c", kids], env={"KIDS": f"{folder}/kids"})

    def of_worker(pid):
        with open(f"{folder}/kids.{pid}") as file:
            return [int(kid) for kid in file]

    of = job.settled()
    victim = random.choice(list(of.pids.values()))
    orphans = of_worker(victim)
    others = [kid for pid in of.pids.values() if pid != victim for kid in of_worker(pid)]
    job.strike(victim)
    wait_for_end(orphans, 10)
    job.settled(of.number)
    if any(not os.path.exists(f"/proc/{kid}") for kid in others):
        raise Broken("a child of a worker that lives is gone")
    job.finish()


@case(42)
def wrecks_its_descriptors(start, random):
    """a worker closes all its descriptors, or writes nonsense into all its sockets"""
    death = random.choice(["close", "scribble"])
    rank = random.randrange(4)
    job = start(["--die-at", f"{random.randrange(5, 100)}:{rank}", "--death", death, "--step-ms", "1"],
                launcher=["--transport", random.choice(["auto", "tcp"]), "--hang-timeout", "10s"])
    of = job.first()
    job.struck.update(of.pids.values())  # nonsense may fail who believes it
    job.settled(of.number)
    job.finish()
    if death == "close" and "has cut its connection" not in job.errors():
        raise Broken(f"that it cut its connection is not told\n{job.errors()}")


@case(43)
def output_that_nobody_reads(start, random):
    """workers flood their stdout, which nobody reads for a while, and one dies meanwhile"""
    flood = '(head -c 30000000 /dev/zero | tr "\\0" "\\377" >&1 &) ; exec "$0" "$@"'
    job = start(["--step-ms", "1"], wrap=["bash", "-c", flood], stdout=subprocess.PIPE)
    of = job.settled()
    some_ms(random, 100)
    of = job.recovers(of, lambda: job.strike(random.choice(list(of.pids.values()))))
    with open(job.out, "wb") as out:
        copy = subprocess.Popen(["tr", "-d", "\\377"], stdin=job.process.stdout, stdout=out)
        job.process.stdout.close()
        open(job.until, "w").close()
        copy.wait(60)
    job.finish(keeps=False)


@case(46)
def newcomer_without_memory(start, random):
    """a newcomer that has no memory for the state"""
    folder = start.folder()
    limit = 'if mkdir "$FIRST.$RANK" 2>/dev/null; then :; else ulimit -v 150000; fi; exec "$0" "$@"'
    job = start(["--size", "5000000", "--step-ms", "1"], wrap=["bash", "-c", limit],
                env={"FIRST": f"{folder}/first"})
    of = job.settled()
    job.strike(random.choice(list(of.pids.values())))
    job.finish(codes=(1, 134))
    if "memory" not in job.errors() and "bad_alloc" not in job.errors():
        raise Broken(f"the reason is not told\n{job.errors()}")


@case(47)
def last_holders_die(start, random):
    """all who hold a shard die at once"""
    job = start(["--step-ms", "1", "--shard", "1003"])
    of = job.settled()
    first = random.randrange(4)
    neighbours = random.random() < 0.7
    victims = [of.pids[first], of.pids[(first + (1 if neighbours else 2)) % 4]]
    some_ms(random, 30)
    job.strikes(victims)
    if not neighbours:
        job.settled(of.number)
        job.finish()
        return
    # Without snapshots all start over, and a message says why.
    job.wait_for("a beginning", lambda: set(job.settled(of.number).steps.values()) == {0})
    job.struck.update(of.pids.values(), *(r.pids.values() for r in job.rounds.values()))
    job.finish(loses=True)
    if "state is lost: commit" not in job.errors():
        raise Broken(f"the reason is not told\n{job.errors()}")

"""Death during recovery: another process dies while the job recovers from a first death. The job
goes on, or ends and says why; nobody waits for ever, and nothing is left."""

import re
import signal
import time

from job import Broken, children, wait_for_end

BIG = ["--size", "2000000"]  # 16 MB, which a newcomer pulls in some tens of ms


def second_member(job, random, of):
    """Another member, within 10 ms."""
    victims = random.sample(list(of.pids.values()), 2)
    job.strike(victims[0])
    time.sleep(random.uniform(0, 0.01))
    job.strike(victims[1])
    return job.settled(of.number)


def newcomer(job, random, of):
    """Who takes the lost place: a spare, or a new process, at any time until it is in."""
    members, spares = set(of.pids.values()), job.spares()
    job.strike(random.choice(sorted(members)))
    if not spares:
        spares = job.wait_for("a newcomer", lambda: set(children(job.agent)) - members)
    time.sleep(random.uniform(0, 0.04))
    job.strikes(spares)
    return job.settled(of.number)


def source(job, random, of):
    """One of those that send the newcomer its state."""
    victim = random.choice(sorted(of.pids))
    job.strike(of.pids[victim])
    job.wait_for("the round", lambda: " workers after " in job.errors())
    time.sleep(random.uniform(0, 0.05))
    job.strike(of.pids[random.choice([rank for rank in of.pids if rank != victim])])
    return job.settled(of.number)


def agent(job, random, of):
    """The agent, once it has decided and before it can announce: a survivor stands meanwhile."""
    lost, stands = random.sample(sorted(of.pids), 2)
    job.strike(of.pids[stands], signal.SIGSTOP)
    job.strike(of.pids[lost])
    job.wait_for("the decision", lambda: "takes its place" in job.errors()
                 or "starting it again" in job.errors())
    time.sleep(random.uniform(0, 0.01))
    job.read()
    if max(job.rounds) != of.number:
        raise Broken("announced without all survivors")
    job.strike(job.agent)
    wait_for_end(of.pids.values(), 5)


def who_does_not_leave(job, random, of):
    """Nobody more; but a member does not leave the round that is over: it hangs."""
    hung = job.wait_for("the hang", lambda: job.dying)[0]
    job.struck.add(hung)
    job.strike(random.choice([pid for pid in of.pids.values() if pid != hung]))
    after = job.settled(of.number)
    if any(pid in of.pids.values() and pid not in job.struck and after.pids[rank] != pid
           for rank, pid in of.pids.items()):
        raise Broken(f"one that waited was taken for the one that hangs\n{job.errors()}")
    return after


WAYS = [second_member, newcomer, source, agent, who_does_not_leave]


def death_in_recovery(start, random):
    """another dies during recovery: a member, the newcomer, the state's source, the agent"""
    way = random.choice(WAYS)
    worker = [*BIG, "--step-ms", "1"] if way in (newcomer, source) else ["--step-ms", "1"]
    launcher = ["--transport", random.choice(["auto", "tcp"])]
    if way is who_does_not_leave:
        worker += ["--die-at", f"20:{random.randrange(4)}", "--death", "spin"]
        launcher += ["--hang-timeout", "5s"]  # nobody else is late for so long
    job = start(worker, spares=random.choice([0, 1]), launcher=launcher)
    of = job.settled()
    time.sleep(random.uniform(0, 0.03))
    if way(job, random, of) is None:
        job.finish(codes=(70,))
    else:
        job.finish()
    announced = set(map(int, re.findall(r"round (\d+): \d+ workers? after", job.errors())))
    start.note(way.__name__.replace("_", " "))
    if announced - set(job.rounds):
        start.note("in the middle of a meeting or a pull")


CASES = {4: death_in_recovery}

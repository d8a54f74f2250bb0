"""Death during recovery: another process dies while the job recovers from a first death. The job
goes on, or ends and says why; nobody waits for ever, and nothing is left."""

import signal
import time

from job import Broken, children, wait_for_end

BIG = ["--size", "4000000"]  # 32 MB, which a newcomer pulls in some tens of ms


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
    announced = "round %d: " % (of.number + 1)
    job.wait_for("the round", lambda: announced in job.errors())
    time.sleep(random.uniform(0, 0.05))
    job.strike(of.pids[random.choice([rank for rank in of.pids if rank != victim])])
    after = job.settled(of.number)
    job.during_pull = after.number > of.number + 1
    return after


def agent(job, random, of):
    """The agent, once it has decided and before it can announce: a survivor stands meanwhile."""
    lost, stands = random.sample(sorted(of.pids), 2)
    job.strike(of.pids[stands], signal.SIGSTOP)
    job.strike(of.pids[lost])
    job.wait_for("the decision", lambda: "takes its place" in job.errors()
                 or "starting it again" in job.errors())
    time.sleep(random.uniform(0, 0.01))
    if len(job.rounds) != 1:
        raise Broken("announced without all survivors")
    job.strike(job.agent)
    wait_for_end(of.pids.values(), 5)


WAYS = [second_member, newcomer, source, agent]


def death_in_recovery(start, random):
    """another dies during recovery: a member, the newcomer, the state's source, the agent"""
    way = random.choice(WAYS)
    worker = [*BIG, "--step-ms", "1"] if way in (newcomer, source) else ["--step-ms", "1"]
    job = start(worker, spares=random.choice([0, 1]),
                launcher=["--transport", random.choice(["auto", "tcp"])])
    of = job.settled()
    time.sleep(random.uniform(0, 0.03))
    if way(job, random, of) is None:
        job.finish(codes=(70,))
    else:
        job.finish()


CASES = {4: death_in_recovery}

"""One long job in which random workers are killed, again and again. Nothing of dlaunch's agent and
keeper grows over it, and nothing of a worker that is never killed."""

import time

from job import Broken, descriptors, footprint

SAMPLES = 12


class Watch:
    """What some processes have open, and their memory, from time to time."""

    def __init__(self, job, processes):
        self.job, self.processes, self.samples = job, processes, []

    def all_are_there(self):
        spares = self.job.spares()
        newest = self.job.rounds[max(self.job.rounds)]
        running = {*newest.pids.values(), *spares}
        return newest.settled() and len(spares) == 1 and self.job.struck.isdisjoint(running)

    def sample(self):
        """While one is missing the agent has less open, and while ranks recover they have."""
        self.job.wait_for("all are there, and a spare", self.all_are_there)
        self.samples.append({name: (sum(descriptors(pid).values()), *footprint(pid))
                             for name, pid in self.processes.items()})

    def check(self):
        """The least of the last quarter is no more than that of the second one: caches have filled
        by then, and what is open for a moment, as while a worker starts, comes and goes."""
        quarter = max(1, len(self.samples) // 4)
        for name in self.processes:
            for index, (what, spare) in enumerate([("descriptors", 2), ("memfds", 0), ("KiB", 512)]):
                values = [sample[name][index] for sample in self.samples]
                print(f"{name:14} {what:12} first {values[0]}, most {max(values)}, last {values[-1]}")
                if min(values[-quarter:]) > min(values[quarter:2 * quarter]) + spare:
                    raise Broken(f"{what} of {name} grow: {values}")


def run(start, random, kills):
    transport = random.choice(["shm", "tcp"])
    job = start(["--step-ms", "1", "--size", "10000"], spares=1, restarts="1000000",
                launcher=["--transport", transport])
    of = job.settled()
    rank = random.randrange(of.size)
    immortal = of.pids[rank]
    watch = Watch(job, {"keeper": job.keeper, "agent": job.agent, f"rank {rank}": immortal})
    done, begin, latencies = 0, time.monotonic(), []
    while done < kills:
        if done * SAMPLES >= kills * len(watch.samples):
            watch.sample()
        time.sleep(random.uniform(0, 0.05))
        victims = [pid for pid in of.pids.values() if pid != immortal] + job.spares()
        count = 1 if random.random() < 0.9 else 2
        struck = random.sample(victims, count)
        now = time.monotonic()
        for pid in struck:
            job.strike(pid)
            time.sleep(random.choice([0, 0.002]))
        done += count
        if not set(struck).isdisjoint(of.pids.values()):
            of = job.settled(of.number)
            latencies.append(time.monotonic() - now)
    watch.sample()
    job.finish()
    latencies.sort()
    print(f"{transport}: {done} kills in {time.monotonic() - begin:.0f} s, {of.number} rounds, at step "
          f"{max(of.steps.values())}; from the kill to the next round's first steps on all ranks: "
          f"median {latencies[len(latencies) // 2] * 1000:.0f} ms, "
          f"p99 {latencies[len(latencies) * 99 // 100] * 1000:.0f} ms, "
          f"most {latencies[-1] * 1000:.0f} ms; nobody hung, no sum was wrong, nothing is left")
    watch.check()
    return 0

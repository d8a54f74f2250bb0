"""The Fashion-MNIST trainer on four workers and a spare, while a random worker is killed every two
seconds: the three others keep their processes, every time, and the model and the loss of every step
are those of an undisturbed run to the last bit."""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from job import PATIENCE, Broken, processes_of, strike, wait_for

RANKS = 4
EVERY = 2  # seconds between two kills


class Training:
    def __init__(self, build, epochs, launcher=()):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="dl-faults-")
        os.mkdir(f"{self.folder}/tmp")
        self.job_id = os.path.basename(self.folder)
        self.environment = dict(os.environ, TMPDIR=f"{self.folder}/tmp", FAULTS_JOB=self.folder)
        self.process = subprocess.Popen(
            [f"{build}/cli/dlaunch", "--job-id", self.job_id, "--nproc", str(RANKS), *launcher,
             f"{build}/examples/train_fashion_mnist", "--batch", "128", "--epochs", str(epochs),
             "--model", f"{self.folder}/model", "--losses", f"{self.folder}/losses"],
            stdin=subprocess.DEVNULL, stdout=open(f"{self.folder}/out", "w"),
            stderr=open(f"{self.folder}/err", "w"), env=self.environment)

    def pids(self):
        """Of its four ranks, once all train in one round and a spare waits; None: they do not. Before
        dl_init they are no elastic workers yet, and end with one that dies; the spare may be quicker."""
        asked = subprocess.run([f"{self.build}/cli/ctl/dlaunchctl", "status", "--json", "--job",
                                self.job_id], capture_output=True, env=self.environment)
        if asked.returncode != 0:
            return None
        status = json.loads(asked.stdout)
        waits = [spare for spare in status["spares"] if spare["state"] == "waiting for a place"]
        if status["state"] != "active" or status["size"] != RANKS or not waits:
            return None
        if not all(worker["elastic"] for worker in status["workers"]):
            return None
        return [worker["pid"] for worker in status["workers"]]

    def ended(self):
        if self.process.poll() is not None:
            raise Broken(f"it has ended before the last kill ({self.process.returncode})\n"
                         f"{self.text('err')}")

    def text(self, name):
        with open(f"{self.folder}/{name}", errors="replace") as file:
            return file.read()

    def results(self):
        """Waits for the end, while one epoch follows the other; the hashes of the model and of the
        losses."""
        told, end = "", time.monotonic() + 2 * PATIENCE
        while self.process.poll() is None:
            if self.text("out") != told:
                told, end = self.text("out"), time.monotonic() + 2 * PATIENCE
            if time.monotonic() > end:
                raise Broken(f"hangs after\n{told}{self.text('err')}")
            time.sleep(0.01)
        code = self.process.returncode
        if code != 0:
            raise Broken(f"exit code {code}:\n{self.text('err')}")
        hashes = []
        for name in ("model", "losses"):
            with open(f"{self.folder}/{name}", "rb") as file:
                hashes.append(hashlib.sha256(file.read()).hexdigest())
        wait_for("nothing is left", lambda: not processes_of(self.folder), 5)
        if os.listdir(f"{self.folder}/tmp"):
            raise Broken("a folder of the job is left")
        return hashes

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
        shutil.rmtree(self.folder)


def kill_one(training, random):
    """Kills one, and waits until its successor trains."""
    before = wait_for("four that train and a spare", training.pids, PATIENCE, training.ended)
    victim = random.randrange(RANKS)
    if not strike(before[victim], training.folder):
        raise Broken(f"rank {victim}, pid {before[victim]}, has ended by itself\n{training.text('err')}")
    killed = time.monotonic()

    def replaced():
        now = training.pids()
        return now if now and now[victim] != before[victim] else None

    after = wait_for("a successor", replaced, PATIENCE, training.ended)
    if after[:victim] + after[victim + 1:] != before[:victim] + before[victim + 1:]:
        raise Broken(f"rank {victim} was killed, and of {before} came {after}")
    time.sleep(max(0, killed + EVERY - time.monotonic()))


def cpu_seconds():
    """Of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def undisturbed(build, seconds, trainings):
    """Trains until it takes long enough for all kills, also where nobody else wants the cores; the
    results and the number of epochs."""
    epochs = max(4, seconds // 3)
    cores = min(RANKS, len(os.sched_getaffinity(0)))
    while True:
        begin = cpu_seconds()
        trainings.append(Training(build, epochs))
        quiet = trainings[-1].results()
        took = (cpu_seconds() - begin) / cores
        if took > 1.6 * seconds:
            print(f"undisturbed: {took:.0f} s at least, {epochs} epochs, model {quiet[0]}", flush=True)
            return quiet, epochs
        epochs = int(epochs * 1.9 * seconds / took) + 1


def run(build, random, seconds):
    trainings = []
    try:
        quiet, epochs = undisturbed(build, seconds, trainings)
        begin = time.monotonic()
        trainings.append(Training(build, epochs, ["--spares", "1", "--max-restarts", "1000"]))
        kills = seconds // EVERY
        for _ in range(kills):
            kill_one(trainings[-1], random)
        last = time.monotonic()
        disturbed = trainings[-1].results()
        print(f"disturbed:   {time.monotonic() - begin:.0f} s, model {disturbed[0]}; {kills} kills "
              f"in {last - begin:.0f} s, the three others kept their processes each time; losses of "
              f"{trainings[-1].text('losses').count(chr(10))} steps compared")
        if quiet != disturbed:
            raise Broken("the model or the losses differ")
        errors = trainings[-1].text("err")
        if errors.count("a spare takes its place") != kills:
            raise Broken(f"not {kills} times a spare that waited took the place\n{errors}")
    finally:
        for training in trainings:
            training.close()
    return 0

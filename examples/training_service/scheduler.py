"""The loop that moves jobs on: it looks at the active ones, and launches those whose turn it is.

It is the only place that starts and looks at processes, on one thread. core.py decides, store.py remembers. Each change
is on the disk before what follows from it is done, so the service may be killed between any two lines: the next one
looks at the same jobs again.
"""

import threading
import traceback

import core

INTERVAL = 0.1  # seconds


class Scheduler:
    def __init__(self, store, runner, slots):
        self.store, self.runner, self.slots = store, runner, slots
        self.stopped = set()  # jobs that were asked to end; dlaunch kills at the second time
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="scheduler")

    def turn(self):
        active = self.store.jobs(core.ACTIVE)
        if any(job.state == core.LAUNCHING for job in active):
            self.runner.look_around()
        for job in active:
            seen = self.runner.look(job)
            job = self.store.change(job.id, lambda job: core.advanced(job, seen))
            if job.state in core.ACTIVE and job.cancelled:
                self._stop(job)
            elif job.state not in core.ACTIVE:
                self.stopped.discard(job.id)
        for job in core.to_launch(self.store.jobs((core.QUEUED, *core.ACTIVE)), self.slots):
            self._launch(job)

    def _launch(self, job):
        job = self.store.change(job.id, core.launched)
        if job.state != core.LAUNCHING:  # it was cancelled meanwhile
            return
        try:
            self.runner.start(job)
        except (OSError, RuntimeError) as error:
            reason = f"it could not be launched: {error}"
            self.store.change(job.id, lambda job: core.failed(job, reason))

    def _stop(self, job):
        if job.id not in self.stopped and self.runner.stop(job):
            self.stopped.add(job.id)

    def _loop(self):
        while not self.ending.is_set():
            try:
                self.turn()
            except Exception:  # a full disk, a busy cluster: say so, and try again
                traceback.print_exc()
            self.ending.wait(INTERVAL)

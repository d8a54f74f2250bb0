"""The loop that moves jobs on: it looks at the active ones, and launches those at the head of the queue.

Only this file starts processes and looks at them, on one thread. core.py decides, store.py remembers. Each change is on
the disk before its consequences. So a kill between any two lines does no harm: the next service looks at the same jobs
again.
"""

import threading
import traceback

import core

INTERVAL = 0.1  # seconds


def guarded(act, *values):
    """A full disk, or a cluster that does not answer: say so; the next turn tries again, and other jobs go on."""
    try:
        act(*values)
    except Exception:
        traceback.print_exc()


class Scheduler:
    def __init__(self, store, runner, slots):
        self.store, self.runner, self.slots = store, runner, slots
        self.stopped = set()  # jobs that were asked to end; dlaunch kills at the second request
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="scheduler")

    def turn(self):
        active = self.store.jobs(core.ACTIVE)
        if any(job.state == core.LAUNCHING for job in active):
            self.runner.look_around()
        for job in active:
            guarded(self._move_on, job)
        for job in core.to_launch(self.store.jobs((core.QUEUED, *core.ACTIVE)), self.slots):
            self._launch(job)

    def _move_on(self, job):
        seen = self.runner.look(job)
        job = self.store.change(job.id, lambda job: core.advanced(job, seen))
        if job.state not in core.ACTIVE:
            self.stopped.discard(job.id)
        elif job.cancelled and job.id not in self.stopped and self.runner.stop(job):
            self.stopped.add(job.id)

    def _launch(self, job):
        job = self.store.change(job.id, core.launched)
        if job.state != core.LAUNCHING:  # it was cancelled meanwhile
            return
        try:
            self.runner.start(job)
        except (LookupError, OSError, RuntimeError) as error:
            reason = f"it could not be launched: {error}"
            self.store.change(job.id, lambda job: core.failed(job, reason))

    def _loop(self):
        while not self.ending.is_set():
            guarded(self.turn)
            self.ending.wait(INTERVAL)

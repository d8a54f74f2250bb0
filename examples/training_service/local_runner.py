"""Runs jobs on this machine with dlaunch.

How a job outlives the service, and never runs twice at the same time:
- dlaunch is in a session of its own, so the end of the service does not end it.
- The service locks the job's file `lock` and hands the locked descriptor to dlaunch, whose workers inherit it. The
  kernel keeps the lock until the last process of the job has ended. So a process that can lock the file knows that no
  process of the job is left. This also works after a kill of the service. It needs no pid, which another process may
  have meanwhile.
- dlaunch writes its report when the job has ended, also if it ended well. A job with a report is over. A job without a
  report and without a process has not finished, and may begin again.
"""

import fcntl
import json
import os
import pathlib
import subprocess

import core


class LocalRunner:
    """folder: has a folder for each job. algorithms: name -> words that start it."""

    def __init__(self, folder, algorithms):
        self.folder, self.algorithms = pathlib.Path(folder), algorithms
        self.children = {}  # id -> the dlaunch that this service has started
        self.workers_started = set()

    def start(self, job):
        folder = self.folder / job.id
        command = ["dlaunch", "--nproc", str(job.instances), "--job-id", job.id, "--error-file",
                   str(folder / "report.json"), "--", *core.command_of(job, self.algorithms)]
        folder.mkdir(exist_ok=True)
        with open(folder / "lock", "w", encoding="utf-8") as lock, open(folder / "log", "ab") as log:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.children[job.id] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                     pass_fds=[lock.fileno()], start_new_session=True)

    def look_around(self):
        """Asks dlaunchctl once for all jobs which of them have workers, for the following calls of look()."""
        listed = subprocess.run(["dlaunchctl", "list", "--json"], capture_output=True, text=True, check=False)
        jobs = json.loads(listed.stdout) if listed.returncode == 0 else []
        self.workers_started = {job["job_id"] for job in jobs if job["status"] and job["status"]["workers"]}

    def look(self, job):
        child = self.children.get(job.id)
        if child is not None:
            child.poll()  # leaves no zombie
        alive = self._alive(job.id)
        report = self.report(job.id)  # after the line above: a job that has ended meanwhile has a report
        if not alive:
            self.children.pop(job.id, None)
        return core.Seen(alive, job.id in self.workers_started, report and report["exit_code"], report,
                         watched=child is not None)

    def stop(self, job):
        """Asks the job to end; dlaunch kills it ten seconds later. False: it cannot be asked yet."""
        asked = subprocess.run(["dlaunchctl", "--job", job.id, "stop"], capture_output=True, check=False)
        return asked.returncode == 0

    def log(self, job_id):
        """The file with the output of the job's ranks. It does not exist before the launch."""
        return self.folder / job_id / "log"

    def report(self, job_id):
        """dlaunch's report of a job that has ended, or None. dlaunch writes it as a whole."""
        try:
            return json.loads((self.folder / job_id / "report.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _alive(self, job_id):
        try:
            lock = os.open(self.folder / job_id / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

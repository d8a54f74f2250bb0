"""Hands jobs to Kubernetes: dlaunch writes a Job with one pod for each parallel instance.

The file job.yaml in the job's folder is the durable part. The service writes it once and as a whole, because it
contains the job's secret. Applying it again changes nothing, so after a kill at any moment the next service applies it
again.
The image must have dlaunch, and the algorithms at the same path as here.
"""

import json
import os
import pathlib
import subprocess

import core


class KubernetesRunner:
    """folder: has a folder for each job. algorithms: name -> words that start it. kubectl: the words that begin a
    command of kubectl, or [] to write files only."""

    def __init__(self, folder, algorithms, image, kubectl):
        self.folder, self.algorithms, self.image, self.kubectl = pathlib.Path(folder), algorithms, image, kubectl
        self.started = set()

    def start(self, job):
        manifest = self._manifest(job.id)
        manifest.parent.mkdir(exist_ok=True)
        if not manifest.exists():
            emitted = subprocess.run(
                ["dlaunch", "--emit", "kubernetes", "--image", self.image, "--nnodes", str(job.instances), "--job-id",
                 self._name(job.id), "--", *core.command_of(job, self.algorithms)],
                capture_output=True, text=True, check=False)
            if emitted.returncode != 0:
                raise RuntimeError(emitted.stderr.strip())
            unfinished = manifest.with_suffix(".new")
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(emitted.stdout)
            os.replace(unfinished, manifest)
        self.started.add(job.id)
        if self.kubectl:
            self._call("apply", "-f", str(manifest))
            self.log(job.id).write_text(f"kubectl logs job/{self._name(job.id)} --all-pods shows the output\n",
                                        encoding="utf-8")

    def look_around(self):
        """Does nothing: it asks about each job separately."""

    def look(self, job):
        if not self.kubectl:  # the file is enough
            written = self._manifest(job.id).exists()
            return core.Seen(exit_code=0 if written else None, watched=job.id in self.started)
        try:
            found = json.loads(self._call("get", "job", self._name(job.id), "--ignore-not-found", "-o", "json") or "{}")
        except RuntimeError:  # the cluster does not answer now, so nothing is known of the job
            return core.Seen(alive=True)
        status = found.get("status", {})
        ends = {condition["type"] for condition in status.get("conditions", []) if condition["status"] == "True"}
        exit_code = 0 if "Complete" in ends else 1 if "Failed" in ends else None
        return core.Seen(bool(found), bool(status.get("active")), exit_code, watched=job.id in self.started)

    def stop(self, job):
        if self.kubectl:
            self._call("delete", "--ignore-not-found", "--wait=false", "-f", str(self._manifest(job.id)))
        return True

    def log(self, job_id):
        return self.folder / job_id / "log"

    def report(self, job_id):
        """dlaunch's report stays in the pod's output."""

    def _name(self, job_id):
        return f"train-{job_id}"

    def _manifest(self, job_id):
        return self.folder / job_id / "job.yaml"

    def _call(self, *words):
        done = subprocess.run([*self.kubectl, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {words[0]}: {done.stderr.strip()}")
        return done.stdout

"""What users of the training service see; training_service.sh runs it. usage: training_service.py SERVICE_PY

Each part is a function. Its algorithms are shell scripts, which write what they do to files named by $NOTES.
"""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

SERVICE = sys.argv[1]
NOTES = pathlib.Path("notes").resolve()
ALGORITHMS = {
    # Notes when it begins and when it has come to its end, by rank 0.
    "count": """n=${1#--n=}
[ "$RANK" = 0 ] || exec sleep 0.3
echo "$n" >>"$NOTES/begun"
sleep 0.3
echo "$n" >>"$NOTES/done"
echo "job $n, rank $RANK of $WORLD_SIZE"
""",
    "fail": """[ "$RANK" = 1 ] || exec sleep 100
echo "no data" >&2
exit 7
""",
    # Works until the file `enough` is there. The pids of its agents are in the file `agents`.
    "wait": """[ "$RANK" = 0 ] && echo $PPID >>"$NOTES/agents"
echo waiting
until [ -e "$NOTES/enough" ]; do sleep 0.05; done
echo over
""",
    "echo": 'echo "$@"\n',
}


def until(condition, what, seconds=60):
    """Polls until the condition holds, and returns what it gave."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Service:
    """A service on the folder `name`, which is started in the same place as often as one likes."""

    def __init__(self, name, *options):
        self.name, self.options, self.process = name, options, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, SERVICE, "--data", self.name, "--algorithms", "algorithms", "--port", "0", *self.options],
            stdout=subprocess.PIPE, text=True, env=dict(os.environ, NOTES=str(NOTES)))
        self.url = self.process.stdout.readline().split()[-1]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.terminate()
        assert self.process.wait(30) == 0, "the service did not end well"

    def raw(self, method, path, body=None, headers=()):
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, method, path, thing=None):
        status, text = self.raw(method, path, None if thing is None else json.dumps(thing).encode())
        return status, json.loads(text)

    def train(self, algorithm, instances=2, **parameters):
        status, job = self.ask("POST", "/train", {"algorithm": algorithm, "PARALLEL_INSTANCES": instances,
                                                  "parameters": parameters})
        assert status == 201 and job["state"] == "queued", (status, job)
        return job["id"]

    def job(self, job_id):
        return self.ask("GET", f"/train/{job_id}")[1]

    def until(self, job_id, *states):
        return until(lambda: (job := self.job(job_id))["state"] in states and job, f"job {job_id} to be {states}")


def lines(name):
    path = NOTES / name
    return path.read_text().split() if path.exists() else []


def a_hundred_jobs():
    service = Service("hundred", "--slots", "10")
    ids = [service.train("count", n=n) for n in range(100)]
    most = 0
    for enough in (20, 60):
        until(lambda: len(lines("done")) >= enough, f"{enough} jobs to be done")
        states = collections.Counter(job["state"] for job in service.ask("GET", "/train")[1])
        most = max(most, states["launching"] + states["running"])
        service.kill()
        time.sleep(0.2)  # jobs end while there is no service
        service.start()
    until(lambda: not {"queued", "launching", "running"} & {job["state"] for job in service.ask("GET", "/train")[1]},
          "all jobs to end", 120)
    jobs = service.ask("GET", "/train")[1]
    assert [job["id"] for job in jobs] == ids, "a job is lost, or stands elsewhere in the queue"
    assert {job["state"] for job in jobs} == {"finished"}, [job for job in jobs if job["state"] != "finished"]
    numbers = [str(n) for n in range(100)]
    assert sorted(lines("done"), key=int) == numbers, f"run twice or never: {lines('done')}"
    assert sorted(lines("begun"), key=int) == numbers, f"begun twice: {lines('begun')}"
    assert 1 <= most <= 10, f"{most} jobs at the same time"
    status, log = service.raw("GET", f"/train/{ids[42]}/logs")
    assert status == 200 and "[0] job 42, rank 0 of 2" in log, log
    service.end()


def a_job_that_fails():
    service = Service("single")
    job = service.until(service.train("fail"), "failed", "finished")
    assert job["state"] == "failed" and job["exit_code"] == 7, job
    assert job["reason"].startswith("rank 1 (pid ") and "failed first: exit code 7" in job["reason"], job
    assert job["report"]["root_cause"]["stderr_tail"] == ["no data"], job["report"]
    failed = service.ask("GET", "/train?state=failed")[1]
    assert [one["id"] for one in failed] == [job["id"]], failed
    service.end()


def an_algorithm_that_is_gone():
    service = Service("gone", "--slots", "0")
    job_id = service.train("echo")
    service.kill()
    os.mkdir("others")
    os.link("algorithms/fail", "others/fail")
    service.options = ("--algorithms", "others")
    service.start()
    job = service.until(job_id, "failed")
    assert job["reason"] == "it could not be launched: there is no algorithm echo any more", job
    service.end()


def cancelling():
    (NOTES / "enough").unlink(missing_ok=True)
    service = Service("cancelled", "--slots", "1")
    first, second = service.train("wait"), service.train("wait")
    service.until(first, "running")
    assert service.ask("DELETE", f"/train/{second}")[0] == 202
    assert service.job(second)["reason"] == "cancelled"
    assert service.ask("DELETE", f"/train/{first}")[0] == 202
    job = service.until(first, "failed")
    assert job["reason"] == "cancelled" and job["report"]["end"] == "interrupted", job
    assert service.ask("DELETE", f"/train/{first}") == (409, {"error": f"job {first} has ended already: failed"})
    service.end()


def kill_keeper(agent):
    """Kills the dlaunch that is the parent of this one: all processes of its job end, and there is no report."""
    parent = pathlib.Path(f"/proc/{agent}/stat").read_text().rsplit(")", 1)[1].split()[1]
    os.kill(int(parent), signal.SIGKILL)


def a_killed_job_begins_again():
    (NOTES / "enough").unlink(missing_ok=True)
    (NOTES / "agents").unlink(missing_ok=True)
    service = Service("again")
    job_id = service.train("wait")
    agent = until(lambda: lines("agents"), "the job to begin")[0]
    service.kill()  # nobody watches
    kill_keeper(agent)
    until(lambda: not pathlib.Path(f"/proc/{agent}").exists(), "the job's processes to end")
    service.start()
    until(lambda: len(lines("agents")) == 2, "the job to begin again")
    assert service.until(job_id, "running")["losses"] == 0
    kill_keeper(lines("agents")[1])  # and now the service watches
    until(lambda: len(lines("agents")) == 3, "the job to begin a third time")
    assert service.until(job_id, "running")["losses"] == 1
    (NOTES / "enough").touch()
    service.until(job_id, "finished")
    service.end()


def logs_while_it_runs():
    (NOTES / "enough").unlink(missing_ok=True)
    service = Service("logs")
    job_id = service.train("wait")
    with urllib.request.urlopen(f"{service.url}/train/{job_id}/logs?follow=1", timeout=60) as log:
        assert log.readline().endswith(b"waiting\n")
        (NOTES / "enough").touch()
        assert b"[0] over\n" in log.read()
    service.until(job_id, "finished")
    assert len(service.raw("GET", f"/train/{job_id}/logs?tail=2")[1].splitlines()) == 2
    assert service.raw("GET", f"/train/{job_id}/logs?tail=0")[1] == ""
    values = {"text": "a b", "macro": "${rank}", "list": ":", "flag": True, "rate": 0.5}
    job_id = service.train("echo", 1, **values)
    service.until(job_id, "finished")
    said = service.raw("GET", f"/train/{job_id}/logs")[1]
    assert said == "[0] --flag=true --list=: --macro=${rank} --rate=0.5 --text=a b\n", said
    service.end()


def wrong_requests():
    service = Service("wrong", "--max-instances", "4")
    second = subprocess.run([sys.executable, SERVICE, "--data", "wrong", "--algorithms", "algorithms", "--port", "0"],
                            capture_output=True, text=True, check=False)
    assert second.returncode == 1 and second.stderr == "service.py: another service uses wrong\n", second

    def refused(status, said, method, path, body=None, headers=()):
        code, text = service.raw(method, path, body, headers)
        error = json.loads(text)
        assert code == status and list(error) == ["error"] and said in error["error"], (code, text)
        assert text.count("\n") == 1, text

    refused(400, "not JSON", "POST", "/train", b"{")
    refused(400, "algorithm is one of: count, echo, fail, wait", "POST", "/train", b'{"algorithm": "../echo"}')
    refused(400, "from 1 to 4", "POST", "/train", b'{"algorithm": "echo", "PARALLEL_INSTANCES": 5}')
    refused(400, "parameter 'x y'", "POST", "/train", b'{"algorithm": "echo", "parameters": {"x y": 1}}')
    refused(413, "more than 65536 bytes", "POST", "/train", b" " * 65537)
    for length in "\u00b2", "9" * 5000:  # the first one is a digit for str.isdigit() alone
        refused(411, "no valid Content-Length", "POST", "/train", b"", {"Content-Length": length})
    refused(404, "there is no /jobs", "GET", "/jobs")
    refused(404, "there is no job abc", "GET", "/train/abc")
    refused(404, "there is no job abc", "DELETE", "/train/abc")
    refused(404, "there is no /train/../etc", "GET", "/train/../etc")
    refused(405, "DELETE is not for /train", "DELETE", "/train")
    refused(400, "state is one of", "GET", "/train?state=lost")
    job_id = service.train("echo")
    refused(400, "tail is a whole number", "GET", f"/train/{job_id}/logs?tail=-1")
    service.until(job_id, "finished")
    assert len(service.ask("GET", "/train")[1]) == 1, "a refused request has become a job"
    service.end()


KUBECTL = """#!/bin/sh
# Stands in for kubectl: `apply` notes the manifest, and the Job is complete once the file `complete` is there.
echo "$1" >>kubectl.calls
case $1 in
  apply) cp "$3" applied.yaml ;;
  get) [ -e applied.yaml ] || exit 0
    if [ -e complete ]; then echo '{"status": {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}}'
    else echo '{"status": {"active": 2}}'; fi ;;
  delete) rm -f applied.yaml ;;
esac
"""


def kubernetes():
    pathlib.Path("kubectl").write_text(KUBECTL)
    os.chmod("kubectl", 0o755)
    service = Service("files", "--runner", "kubernetes", "--image", "registry.example.org/train:1")
    job_id = service.train("echo", 3, x=1)
    service.until(job_id, "finished")
    manifest = pathlib.Path("files", "jobs", job_id, "job.yaml")
    text = manifest.read_text()
    assert f"name: train-{job_id}" in text and "completions: 3" in text and "--x=1" in text, text
    assert manifest.stat().st_mode & 0o077 == 0, "others may read the job's secret"
    service.end()

    service = Service("cluster", "--runner", "kubernetes", "--image", "i", "--kubectl", "sh kubectl")
    job_id = service.train("echo", 2)
    service.until(job_id, "running")
    before = pathlib.Path("applied.yaml").read_text()
    service.kill()
    service.start()
    pathlib.Path("complete").touch()
    service.until(job_id, "finished")
    assert pathlib.Path("kubectl.calls").read_text().split().count("apply") == 1
    assert pathlib.Path("applied.yaml").read_text() == before, "a second manifest with another secret"
    pathlib.Path("complete").unlink()
    pathlib.Path("applied.yaml").unlink()
    job_id = service.train("echo", 2)
    service.until(job_id, "running")
    service.ask("DELETE", f"/train/{job_id}")
    assert service.until(job_id, "failed")["reason"] == "cancelled"
    service.end()


def main():
    NOTES.mkdir()
    os.mkdir("algorithms")
    for name, script in ALGORITHMS.items():
        path = pathlib.Path("algorithms", name)
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)
    for part in (a_hundred_jobs, a_job_that_fails, an_algorithm_that_is_gone, cancelling, a_killed_job_begins_again,
                 logs_while_it_runs, wrong_requests, kubernetes):
        begin = time.monotonic()
        part()
        print(f"{part.__name__} ({time.monotonic() - begin:.1f} s): ok", flush=True)


main()

#!/usr/bin/env python3
"""A small training service: trainings come by HTTP, wait in a queue, and run with dlaunch.

    python3 service.py --data data --algorithms algorithms --port 8080

README.md is a walk through it. It uses only the standard library. It has no accounts: every client of the port may
start the programs in the folder of algorithms, so the service listens at 127.0.0.1 unless --host says otherwise.
"""

import argparse
import fcntl
import os
import pathlib
import shlex
import signal
import sys
import threading

from http_api import Server
from kubernetes_runner import KubernetesRunner
from local_runner import LocalRunner
from scheduler import Scheduler
from store import Store


def arguments():
    parser = argparse.ArgumentParser(description="A small training service on dlaunch.")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of the queue and of the jobs' files")
    parser.add_argument("--algorithms", required=True, type=pathlib.Path, help="folder of the programs that may be run")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at [127.0.0.1]")
    parser.add_argument("--port", default=8080, type=int, help="port to listen at; 0: a free one [8080]")
    parser.add_argument("--slots", default=10, type=int, help="jobs that run at the same time [10]")
    parser.add_argument("--max-instances", default=64, type=int, help="largest PARALLEL_INSTANCES [64]")
    parser.add_argument("--runner", default="local", choices=("local", "kubernetes"), help="where jobs run [local]")
    parser.add_argument("--image", help="with --runner kubernetes: the container image")
    parser.add_argument("--kubectl", default="", help="with --runner kubernetes: how to call kubectl; without it the "
                        "service writes job.yaml for each job, and nothing else")
    given = parser.parse_args()
    if given.runner == "kubernetes" and not given.image:
        parser.error("--runner kubernetes needs --image")
    return given


def algorithms_in(folder):
    """name -> words that start it: Python programs, and executables. Requests name these and nothing else."""
    found = {}
    for path in sorted(folder.resolve().iterdir()):
        if path.suffix == ".py":
            found[path.stem] = ["python3", "-u", str(path)]
        elif path.is_file() and os.access(path, os.X_OK):
            found[path.stem] = [str(path)]
    return found


def lock_folder(folder):
    """Two services on one folder would run each job twice. The lock lasts as long as this process."""
    lock = open(folder / "service.lock", "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"service.py: another service uses {folder}")
    return lock


def main():
    given = arguments()
    algorithms = algorithms_in(given.algorithms)
    if not algorithms:
        sys.exit(f"service.py: there is no algorithm in {given.algorithms}")
    jobs = given.data.resolve() / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(given.data)
    store = Store(given.data / "jobs.sqlite")
    if given.runner == "local":
        runner = LocalRunner(jobs, algorithms)
    else:
        runner = KubernetesRunner(jobs, algorithms, given.image, shlex.split(given.kubectl))
    scheduler = Scheduler(store, runner, given.slots)
    server = Server((given.host, given.port), store, runner, algorithms, given.max_instances)

    # Jobs outlive the service, however it ends, and the next one continues them.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    scheduler.thread.start()
    print(f"listening at http://{given.host}:{server.server_port}", flush=True)
    server.serve_forever()
    scheduler.ending.set()
    scheduler.thread.join()
    lock.close()


if __name__ == "__main__":
    main()

"""The decisions of the training service.

Nothing here reads a clock, a file or a socket, and nothing here waits. Each function takes values and returns values,
so a test can try every case without a process: test_core.py.

A job goes through these states:

    queued -> launching -> running -> finished
                 |            |    -> failed
                 +------------+-----> queued     if its processes were killed
"""

import dataclasses
import json
import math
import re
from typing import Optional

QUEUED, LAUNCHING, RUNNING, FINISHED, FAILED = STATES = ("queued", "launching", "running", "finished", "failed")
ACTIVE = (LAUNCHING, RUNNING)  # the states that take a slot
ENDED = (FINISHED, FAILED)
LOSSES = 3  # a job does not begin again after its processes were killed this many times without a report

CANCELLED = "cancelled"
PARAMETER = re.compile(r"[a-z][a-z0-9_-]{0,63}")
MAX_VALUE = 1000  # characters


class BadRequest(Exception):
    """The request is wrong. The text is the answer for its sender: one line."""


class Conflict(Exception):
    """The request is right, but the job is not in a state for it."""


@dataclasses.dataclass(frozen=True)
class Request:
    algorithm: str
    instances: int
    parameters: dict


@dataclasses.dataclass(frozen=True)
class Job:
    id: str
    algorithm: str
    instances: int
    parameters: dict
    state: str = QUEUED
    cancelled: bool = False  # a client asked to end it
    losses: int = 0  # how often its processes were killed while the service watched
    exit_code: Optional[int] = None
    reason: str = ""  # why it failed


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a runner sees of a job's processes."""

    alive: bool = False  # some process of the job exists
    running: bool = False  # its workers have started
    exit_code: Optional[int] = None  # set when it has ended
    report: Optional[dict] = None  # dlaunch's report
    watched: bool = False  # this service has started it, not an earlier one that was killed


def no_constant(name):
    raise ValueError(f"{name} is no number of JSON")


def parse_request(body, algorithms, max_instances):
    """The Request in the body of POST /train. algorithms: the names that exist."""
    try:
        request = json.loads(body, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None
    if not isinstance(request, dict):
        raise BadRequest("the body is not a JSON object")
    unknown = sorted(set(request) - {"algorithm", "PARALLEL_INSTANCES", "parameters"})
    if unknown:
        raise BadRequest(f"unknown member {unknown[0]!r}; known are algorithm, PARALLEL_INSTANCES and parameters")
    algorithm = request.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise BadRequest(f"algorithm is one of: {', '.join(sorted(algorithms))}")
    instances = request.get("PARALLEL_INSTANCES", 1)
    if isinstance(instances, bool) or not isinstance(instances, int) or not 1 <= instances <= max_instances:
        raise BadRequest(f"PARALLEL_INSTANCES is a whole number from 1 to {max_instances}")
    return Request(algorithm, instances, checked_parameters(request.get("parameters", {})))


def checked_parameters(parameters):
    if not isinstance(parameters, dict):
        raise BadRequest("parameters is a JSON object")
    for name, value in parameters.items():
        if not PARAMETER.fullmatch(name):
            raise BadRequest(f"parameter {name!r}: a name has lower-case letters, digits, - and _, "
                             "begins with a letter, and has at most 64 characters")
        if not isinstance(value, (str, int, float)):
            raise BadRequest(f"parameter {name!r}: a value is a string, a number, true or false")
        if isinstance(value, float) and not math.isfinite(value):  # JSON has no infinity, but 1e999 becomes one
            raise BadRequest(f"parameter {name!r}: the number is too large")
        if isinstance(value, str) and (len(value) > MAX_VALUE or not value.isprintable()):
            raise BadRequest(f"parameter {name!r}: a string has at most {MAX_VALUE} printable characters")
    return parameters


def arguments_of(parameters):
    """The parameters as arguments of the algorithm's program: {"epochs": 3} is --epochs=3.

    dlaunch replaces macros such as ${rank} in arguments; the values of requests must arrive unchanged.
    """
    def text(value):
        return json.dumps(value) if not isinstance(value, str) else value.replace("${", "$${")

    return [f"--{name}={text(value)}" for name, value in sorted(parameters.items())]


def command_of(job, algorithms):
    """The words that run the job's algorithm. LookupError: the folder of algorithms no longer has it."""
    if job.algorithm not in algorithms:
        raise LookupError(f"there is no algorithm {job.algorithm} any more")
    return [*algorithms[job.algorithm], *arguments_of(job.parameters)]


def to_launch(jobs, slots):
    """The jobs to launch now: the first ones in the queue, as many as slots are free. jobs: in their order."""
    free = slots - sum(job.state in ACTIVE for job in jobs)
    return [job for job in jobs if job.state == QUEUED][:max(free, 0)]


def launched(job):
    """The job as its launch begins. Unchanged if it is no longer in the queue."""
    return dataclasses.replace(job, state=LAUNCHING) if job.state == QUEUED else job


def failed(job, reason, exit_code=None):
    return dataclasses.replace(job, state=FAILED, reason=reason, exit_code=exit_code)


def advanced(job, seen):
    """The job after its runner has looked at it."""
    if job.state not in ACTIVE:
        return job
    if seen.exit_code == 0:
        return dataclasses.replace(job, state=FINISHED, exit_code=0)
    if seen.exit_code is not None:
        return failed(job, CANCELLED if job.cancelled else reason_of(seen.exit_code, seen.report), seen.exit_code)
    if seen.alive:
        return dataclasses.replace(job, state=RUNNING) if seen.running else job
    return lost(job, seen.watched)


def lost(job, watched):
    """No process of the job is left, and none has reported. The job begins again, unless that happens too often."""
    losses = job.losses + watched
    if job.cancelled:
        return failed(job, CANCELLED)
    if losses >= LOSSES:
        return failed(dataclasses.replace(job, losses=losses), f"its processes were killed {losses} times")
    return dataclasses.replace(job, state=QUEUED, losses=losses)


def cancelled(job):
    """The job after a client has asked to end it. The runner ends the processes of an active one."""
    if job.state in ENDED:
        raise Conflict(f"job {job.id} has ended already: {job.state}")
    if job.state == QUEUED:
        return failed(dataclasses.replace(job, cancelled=True), CANCELLED)
    return dataclasses.replace(job, cancelled=True)


def reason_of(exit_code, report):
    """One line out of dlaunch's report: "rank 1 (pid 4711 on host h1) failed first: exit code 7 after 12.8 s"."""
    return (report or {}).get("summary") or f"dlaunch ended with {exit_code}"

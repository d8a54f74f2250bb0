"""The training service by HTTP. Logs are text, and all other answers are JSON. An error is {"error": "one line"}.

    POST   /train             a new job: {"algorithm": "fit_line", "PARALLEL_INSTANCES": 2, "parameters": {"steps": 9}}
    GET    /train             all jobs; ?state=failed: those in this state
    GET    /train/ID          one job, with dlaunch's report if it has ended
    GET    /train/ID/logs     its output; ?tail=10: the last lines; ?follow=1: and what comes, until it ends
    DELETE /train/ID          cancels it
"""

import dataclasses
import http.server
import json
import re
import sqlite3
import time
import urllib.parse

import core

MAX_BODY = 64 * 1024
FOLLOW_INTERVAL = 0.2  # seconds


class Refused(Exception):
    """An answer that is an error: its status and its text."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True  # a client that follows a log does not keep the service from ending
    request_queue_size = 128

    def __init__(self, address, store, runner, algorithms, max_instances):
        super().__init__(address, Handler)
        self.store, self.runner, self.algorithms, self.max_instances = store, runner, algorithms, max_instances


class Handler(http.server.BaseHTTPRequestHandler):
    server_version = "training-service"
    timeout = 60  # seconds that a client may take for its request

    def do_POST(self):
        self.answer({"/train": self.create})

    def do_GET(self):
        self.answer({"/train": self.list, "/train/ID": self.show, "/train/ID/logs": self.logs})

    def do_DELETE(self):
        self.answer({"/train/ID": self.cancel})

    def answer(self, routes):
        """Sends the result of the route's function, a status and an object. None: the function has answered itself."""
        try:
            said = self.said(routes)
            if said:
                self.send(*said)
        except ConnectionError:  # the client has gone
            self.close_connection = True

    def said(self, routes):
        url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(url.query))
        found = re.fullmatch(r"/train(?:/([0-9a-f]+)(/logs)?)?", url.path)
        try:
            if not found:
                raise Refused(404, f"there is no {url.path}; there is /train, /train/ID and /train/ID/logs")
            job_id, logs = found.groups()
            route = "/train" + ("/ID" if job_id else "") + (logs or "")
            if route not in routes:
                raise Refused(405, f"{self.command} is not for {route}")
            return routes[route](job_id) if job_id else routes[route]()
        except core.BadRequest as error:
            return 400, {"error": str(error)}
        except core.Conflict as error:
            return 409, {"error": str(error)}
        except Refused as error:
            return error.status, {"error": str(error)}
        except sqlite3.Error as error:
            return 503, {"error": f"the queue cannot be read or written: {error}"}

    def send(self, status, thing):
        body = (json.dumps(thing) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def create(self):
        request = core.parse_request(self.body(), self.server.algorithms, self.server.max_instances)
        return 201, shown(self.server.store.add(request))

    def list(self):
        state = self.query.get("state")
        if state is not None and state not in core.STATES:
            raise core.BadRequest(f"state is one of: {', '.join(core.STATES)}")
        return 200, [shown(job) for job in self.server.store.jobs([state] if state else core.STATES)]

    def show(self, job_id):
        job = self.job(job_id)
        return 200, dict(shown(job), report=self.server.runner.report(job_id) if job.state in core.ENDED else None)

    def cancel(self, job_id):
        self.job(job_id)
        return 202, shown(self.server.store.change(job_id, core.cancelled))

    def logs(self, job_id):
        self.job(job_id)
        tail, follow = self.number("tail"), self.number("follow")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Connection", "close")  # the end of the connection is the end of the log
        self.end_headers()
        position = self.send_log(job_id, 0, tail)
        while follow and self.job(job_id).state not in core.ENDED:
            time.sleep(FOLLOW_INTERVAL)
            position = self.send_log(job_id, position)
        self.send_log(job_id, position)  # output between the last look and the end

    def send_log(self, job_id, position, tail=None):
        """Sends the log from this position on, or its last lines. Returns the position of its end."""
        try:
            with open(self.server.runner.log(job_id), "rb") as log:
                log.seek(position)
                text = log.read()
        except FileNotFoundError:
            return position
        lines = text.splitlines(keepends=True)
        self.wfile.write(text if tail is None else b"".join(lines[max(0, len(lines) - tail):]))
        return position + len(text)

    def job(self, job_id):
        job = self.server.store.get(job_id)
        if job is None:
            raise Refused(404, f"there is no job {job_id}")
        return job

    def number(self, name):
        text = self.query.get(name)
        if text is None:
            return None
        if not re.fullmatch("[0-9]{1,9}", text):
            raise core.BadRequest(f"{name} is a whole number")
        return int(text)

    def body(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,18}", length):
            raise Refused(411, "the request has no valid Content-Length")
        if int(length) > MAX_BODY:
            raise Refused(413, f"the body has more than {MAX_BODY} bytes")
        return self.rfile.read(int(length))

    def log_message(self, format, *values):
        """Requests are not printed."""


def shown(job):
    """A job as answers show it, with the names of the request."""
    members = dataclasses.asdict(job)
    return {"PARALLEL_INSTANCES" if name == "instances" else name: value for name, value in members.items()}

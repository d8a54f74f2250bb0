"""The jobs of the training service in SQLite: they survive a crash of the service and of the machine."""

import contextlib
import dataclasses
import json
import secrets
import sqlite3
import threading

import core

TABLE = """CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of the queue
  id TEXT UNIQUE NOT NULL, algorithm TEXT NOT NULL, instances INTEGER NOT NULL, parameters TEXT NOT NULL,
  state TEXT NOT NULL, cancelled INTEGER NOT NULL, losses INTEGER NOT NULL, exit_code INTEGER, reason TEXT NOT NULL)"""
FIELDS = [field.name for field in dataclasses.fields(core.Job)]


def row_of(job):
    row = dataclasses.asdict(job)
    row["parameters"] = json.dumps(job.parameters)
    return [row[name] for name in FIELDS]


def job_of(row):
    values = dict(zip(FIELDS, row))
    return core.Job(**dict(values, parameters=json.loads(values["parameters"]), cancelled=bool(values["cancelled"])))


class Store:
    """Any thread. Each call is one transaction, and its result is on the disk when it returns."""

    def __init__(self, path):
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(TABLE)

    @contextlib.contextmanager
    def _transaction(self):
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise

    def add(self, request):
        """A new job at the end of the queue."""
        job = core.Job(secrets.token_hex(6), request.algorithm, request.instances, request.parameters)
        with self._transaction() as database:
            database.execute(f"INSERT INTO jobs ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})",
                             row_of(job))
        return job

    def jobs(self, states=core.STATES):
        """The jobs in these states, in the order in which they came."""
        with self._transaction() as database:
            rows = database.execute(f"SELECT {', '.join(FIELDS)} FROM jobs "
                                    f"WHERE state IN ({', '.join('?' * len(states))}) ORDER BY number", states)
            return [job_of(row) for row in rows]

    def get(self, job_id):
        """The job, or None."""
        return self.change(job_id, lambda job: job)

    def change(self, job_id, decide):
        """Replaces the job with decide(job), in one transaction, and returns that. None: there is no such job."""
        with self._transaction() as database:
            row = database.execute(f"SELECT {', '.join(FIELDS)} FROM jobs WHERE id = ?", [job_id]).fetchone()
            if row is None:
                return None
            before = job_of(row)
            after = decide(before)
            if after != before:
                database.execute(f"UPDATE jobs SET {', '.join(name + ' = ?' for name in FIELDS)} WHERE id = ?",
                                 row_of(after) + [job_id])
            return after

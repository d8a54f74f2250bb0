"""Every decision of core.py, without a process: python3 test_core.py"""

import json
import unittest

import core
from core import FAILED, FINISHED, LAUNCHING, QUEUED, RUNNING, Job, Seen


def job(state, **values):
    return Job("ab12", "fit_line", 2, {}, state=state, **values)


class Requests(unittest.TestCase):
    def parse(self, request):
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return core.parse_request(body, {"fit_line", "other"}, 8)

    def test_a_request_has_defaults(self):
        self.assertEqual(self.parse({"algorithm": "fit_line"}), core.Request("fit_line", 1, {}))

    def test_a_whole_request(self):
        parameters = {"rate": 0.1, "name": "x", "deep": True}
        self.assertEqual(self.parse({"algorithm": "other", "PARALLEL_INSTANCES": 8, "parameters": parameters}),
                         core.Request("other", 8, parameters))

    def test_what_is_wrong_is_said(self):
        good = {"algorithm": "fit_line"}
        for wrong, said in (
            (b"{", "not JSON"), (b'{"algorithm": NaN}', "not JSON"), (b"\xff", "not JSON"), (b"[" * 100000, "not JSON"),
            ([], "not a JSON object"), ({}, "algorithm is one of: fit_line, other"),
            ({"algorithm": "../fit_line"}, "algorithm is one of"), ({"algorithm": ["fit_line"]}, "algorithm is one of"),
            (dict(good, user="x"), "unknown member 'user'"),
            (dict(good, PARALLEL_INSTANCES=0), "from 1 to 8"), (dict(good, PARALLEL_INSTANCES=9), "from 1 to 8"),
            (dict(good, PARALLEL_INSTANCES=True), "from 1 to 8"), (dict(good, PARALLEL_INSTANCES="2"), "from 1 to 8"),
            (dict(good, parameters=[1]), "parameters is a JSON object"),
            (dict(good, parameters={"-x": 1}), "parameter '-x': a name"),
            (dict(good, parameters={"x y": 1}), "parameter 'x y': a name"),
            (dict(good, parameters={"x": [1]}), "parameter 'x': a value"),
            (dict(good, parameters={"x": None}), "parameter 'x': a value"),
            (b'{"algorithm": "fit_line", "parameters": {"x": -1e999}}', "parameter 'x': the number is too large"),
            (dict(good, parameters={"x": "a\nb"}), "printable"), (dict(good, parameters={"x": "a" * 1001}), "1000"),
        ):
            with self.assertRaises(core.BadRequest) as caught:
                self.parse(wrong)
            self.assertIn(said, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))

    def test_parameters_arrive_as_they_are(self):
        self.assertEqual(core.arguments_of({"b": 1.5, "a": "x y", "c": True, "d": "${rank}"}),
                         ["--a=x y", "--b=1.5", "--c=true", "--d=$${rank}"])


class Queue(unittest.TestCase):
    def test_the_first_ones_are_launched_as_slots_are_free(self):
        jobs = [job(RUNNING), job(LAUNCHING), job(QUEUED, losses=1), job(QUEUED), job(FINISHED)]
        self.assertEqual(core.to_launch(jobs, 3), [jobs[2]])
        self.assertEqual(core.to_launch(jobs, 9), jobs[2:4])
        self.assertEqual(core.to_launch(jobs, 1), [])

    def test_only_an_algorithm_that_exists_has_a_command(self):
        self.assertEqual(core.command_of(job(QUEUED), {"fit_line": ["python3", "x.py"]}), ["python3", "x.py"])
        with self.assertRaises(LookupError):
            core.command_of(job(QUEUED), {})

    def test_only_a_queued_job_is_launched(self):
        self.assertEqual(core.launched(job(QUEUED)).state, LAUNCHING)
        ended = core.cancelled(job(QUEUED))
        self.assertEqual(core.launched(ended), ended)


class Progress(unittest.TestCase):
    def test_workers_that_start_make_it_running(self):
        self.assertEqual(core.advanced(job(LAUNCHING), Seen(alive=True)).state, LAUNCHING)
        self.assertEqual(core.advanced(job(LAUNCHING), Seen(alive=True, running=True)).state, RUNNING)
        self.assertEqual(core.advanced(job(RUNNING), Seen(alive=True)).state, RUNNING)

    def test_it_ends_as_dlaunch_does(self):
        for state in core.ACTIVE:
            self.assertEqual(core.advanced(job(state), Seen(exit_code=0)).state, FINISHED)
        report = {"end": "worker_failed", "summary": "rank 1 failed first: exit code 7"}
        ended = core.advanced(job(RUNNING), Seen(exit_code=7, report=report))
        self.assertEqual((ended.state, ended.exit_code), (FAILED, 7))
        self.assertEqual(ended.reason, "rank 1 failed first: exit code 7")
        self.assertEqual(core.advanced(job(RUNNING), Seen(exit_code=1)).reason, "dlaunch ended with 1")

    def test_a_lost_job_begins_again_but_not_for_ever(self):
        lost = job(RUNNING)
        for losses in range(1, core.LOSSES):
            lost = core.advanced(lost, Seen(watched=True))
            self.assertEqual((lost.state, lost.losses), (QUEUED, losses))
            lost = core.launched(lost)
        lost = core.advanced(lost, Seen(watched=True))
        self.assertEqual((lost.state, lost.reason), (FAILED, f"its processes were killed {core.LOSSES} times"))

    def test_what_was_lost_with_the_machine_does_not_count(self):
        self.assertEqual(core.advanced(job(RUNNING), Seen(watched=False)).losses, 0)

    def test_what_has_ended_stays_so(self):
        for state in (*core.ENDED, QUEUED):
            self.assertEqual(core.advanced(job(state), Seen(exit_code=1)), job(state))


class Cancelling(unittest.TestCase):
    def test_a_queued_job_ends_at_once(self):
        self.assertEqual(core.cancelled(job(QUEUED)).state, FAILED)

    def test_an_active_job_ends_when_its_processes_have(self):
        asked = core.cancelled(job(RUNNING))
        self.assertEqual((asked.state, asked.cancelled), (RUNNING, True))
        self.assertEqual(core.advanced(asked, Seen(exit_code=143)).reason, core.CANCELLED)
        self.assertEqual(core.advanced(asked, Seen()).reason, core.CANCELLED)

    def test_a_job_that_was_faster_has_finished(self):
        self.assertEqual(core.advanced(core.cancelled(job(RUNNING)), Seen(exit_code=0)).state, FINISHED)

    def test_an_ended_job_cannot_be_cancelled(self):
        with self.assertRaises(core.Conflict):
            core.cancelled(job(FINISHED))


if __name__ == "__main__":
    unittest.main()

"""The decisions of Horovod's coordinator. usage: horovod_coordinator.py python/dlaunch/horovod/_coordinator.py"""

import importlib.util
import itertools
import random
import sys
import unittest


def load(path):
    spec = importlib.util.spec_from_file_location("coordinator", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensor(name, shape=(2,), dtype="float32", kind="allreduce", number=0, **more):
    parameters = {"op": "Sum", "pre": 1.0, "post": 1.0} if kind in ("allreduce", "reducescatter") else {}
    return {"kind": kind, "set": number, "name": name, "tensors": [[dtype, list(shape)]], **parameters, **more}


def submit(core, rank, *requests, now=0.0):
    for request in requests:
        core.request(now, rank, request)


def names(responses):
    return [response["names"] for response in responses]


class CoordinatorTest(unittest.TestCase):
    def core(self, size=3, **settings):
        return coordinator.Coordinator(size, coordinator.Settings(**settings))

    def test_a_tensor_is_ready_once_all_have_submitted_it(self):
        core = self.core()
        for rank in 2, 0:
            submit(core, rank, tensor("a"))
            self.assertEqual(core.take(0), [])
        submit(core, 1, tensor("a"))
        response, = core.take(0)
        self.assertEqual((response["do"], response["names"], response["members"]), ("allreduce", ["a"], [0, 1, 2]))
        self.assertEqual(core.take(0), [])

    def test_ranks_may_submit_in_any_order(self):
        for orders in itertools.product(itertools.permutations("abc"), repeat=2):
            core = self.core(2, fusion_bytes=0)
            submit(core, 0, *map(tensor, orders[0]))
            submit(core, 1, *map(tensor, orders[1]))
            self.assertEqual(names(core.take(0)), [[name] for name in orders[1]])

    def test_a_name_may_be_used_again_and_kinds_have_names_of_their_own(self):
        core = self.core(2)
        for _ in range(2):
            submit(core, 0, tensor("a"), tensor("a", kind="broadcast", root=0))
            submit(core, 1, tensor("a"), tensor("a", kind="broadcast", root=0))
            self.assertEqual([response["do"] for response in core.take(0)], ["allreduce", "broadcast"])

    def test_small_tensors_of_one_kind_run_together(self):
        core = self.core(1, fusion_bytes=16)
        submit(core, 0, tensor("a"), tensor("b"), tensor("c"), tensor("d", dtype="float64"), tensor("e", op="Max"))
        responses = core.take(0)
        self.assertEqual(names(responses), [["a", "b"], ["c"], ["d"], ["e"]])
        self.assertEqual(responses[0]["parts"], [1, 1])
        submit(core, 0, tensor("a"), tensor("g", kind="allgather"), tensor("b"))
        self.assertEqual(names(core.take(0)), [["a"], ["g"], ["b"]])

    def test_disagreement_is_told_to_all_with_the_ranks(self):
        for change, word in (({"shape": (3,)}, "shape"), ({"dtype": "int32"}, "type"), ({"op": "Max"}, "reduction op"),
                             ({"post": 0.5}, "postscale_factor")):
            core = self.core()
            submit(core, 0, tensor("a"))
            submit(core, 1, tensor("a"))
            submit(core, 2, tensor("a", **change))
            response, = core.take(0)
            self.assertEqual((response["do"], response["members"]), ("error", [0, 1, 2]))
            self.assertRegex(response["text"],
                             f"allreduce of 'a': the ranks disagree on the {word}: ranks 0, 1: .*; rank 2: ")
        core = self.core(2)
        submit(core, 0, tensor("a", kind="broadcast", root=0))
        submit(core, 1, tensor("a", kind="broadcast", root=1))
        self.assertIn("root rank: rank 0: 0; rank 1: 1", core.take(0)[0]["text"])

    def test_an_allgather_may_have_other_first_dimensions_only(self):
        core = self.core(2)
        submit(core, 0, tensor("a", (1, 5), kind="allgather"))
        submit(core, 1, tensor("a", (3, 5), kind="allgather"))
        self.assertEqual(core.take(0)[0]["rows"], [[1, 3]])
        submit(core, 0, tensor("a", (1, 5), kind="allgather"))
        submit(core, 1, tensor("a", (1, 4), kind="allgather"))
        self.assertIn("[any, 5]; rank 1: [any, 4]", core.take(0)[0]["text"])

    def test_joined_ranks_are_not_waited_for(self):
        core = self.core()
        submit(core, 0, tensor("a"))
        submit(core, 2, {"kind": "join"})
        self.assertEqual(core.take(0), [])
        submit(core, 1, tensor("a"))
        self.assertEqual(names(core.take(0)), [["a"]])
        submit(core, 1, tensor("b"))
        submit(core, 0, {"kind": "join"})
        self.assertEqual(names(core.take(0)), [["b"]])
        submit(core, 0, tensor("g", (4,), kind="allgather"))
        submit(core, 1, tensor("g", (2,), kind="allgather"), {"kind": "join"})
        gathered, joined = core.take(0)
        self.assertEqual(gathered["rows"], [[4, 2, 0]])
        self.assertEqual(joined, {"do": "joined", "last": 1})
        submit(core, 0, tensor("a"))
        self.assertEqual(core.take(0), [])  # after that all count again

    def test_a_root_that_has_joined_is_an_error(self):
        core = self.core(2)
        submit(core, 0, {"kind": "join"})
        submit(core, 1, tensor("a", kind="broadcast", root=0))
        self.assertIn("rank 0, has joined", core.take(0)[0]["text"])

    def test_process_sets(self):
        core = self.core()
        for rank in range(3):
            submit(core, rank, {"kind": "add_set", "set": 0, "name": "1", "ranks": [0, 2]})
        self.assertEqual((core.take(0)[0]["id"], core.sets[1]), (1, [0, 2]))
        submit(core, 2, tensor("a", number=1), tensor("a"))
        submit(core, 0, tensor("a", number=1))
        response, = core.take(0)
        self.assertEqual((response["set"], response["members"]), (1, [0, 2]))
        submit(core, 0, tensor("b", number=1))
        for rank in range(3):
            submit(core, rank, {"kind": "remove_set", "set": 0, "name": "2", "id": 1})
        self.assertEqual([response["do"] for response in core.take(0)], ["error", "remove_set"])
        submit(core, 0, tensor("b", number=1))
        self.assertIn("was removed", core.take(0)[0]["text"])

    def test_a_join_completes_the_removal_of_a_set_with_what_is_pending_in_it(self):
        core = self.core()
        for rank in range(3):
            submit(core, rank, {"kind": "add_set", "set": 0, "name": "1", "ranks": [0, 1]})
        core.take(0)
        removal = {"kind": "remove_set", "set": 0, "name": "2", "id": 1}
        submit(core, 0, removal)
        submit(core, 1, tensor("x", number=1), removal)
        submit(core, 2, {"kind": "join"})
        failed, removed = core.take(0)
        self.assertEqual((failed["do"], failed["names"], failed["members"]), ("error", ["x"], [0, 1]))
        self.assertEqual((removed["do"], removed["removed"]), ("remove_set", True))
        self.assertIsNone(core.deadline())

    def test_a_stall_is_warned_of_and_ends_all(self):
        core = self.core(warn_after=10, end_after=25)
        self.assertIsNone(core.deadline())
        submit(core, 0, tensor("a"), now=1)
        submit(core, 2, tensor("a"), now=2)
        self.assertEqual(core.deadline(), 11)
        self.assertEqual((core.take(10.9), core.warnings), ([], []))
        core.take(11)
        self.assertEqual(core.warnings,
                         ["allreduce of 'a' waits for 10 s: ranks 0, 2 submitted it, and rank 1 did not"])
        self.assertEqual(core.deadline(), 21)
        core.take(21)
        self.assertEqual((len(core.warnings), core.deadline()), (2, 26))
        response, = core.take(26)
        self.assertEqual(response["do"], "shutdown")
        self.assertIn("rank 1 did not", response["text"])
        self.assertIsNone(self.core(warn_after=0).deadline())

    def test_a_shutdown_is_the_end(self):
        core = self.core()
        submit(core, 0, tensor("a"))
        submit(core, 1, {"kind": "shutdown"})
        self.assertEqual(core.take(0), [{"do": "shutdown", "text": "rank 1 has shut Horovod down"}])
        submit(core, 2, tensor("a"), {"kind": "shutdown"})
        self.assertEqual((core.take(0), core.deadline()), ([], None))
        core = self.core()
        submit(core, 1, {"kind": "shutdown", "at_exit": True})
        self.assertEqual(core.take(0), [{"do": "shutdown", "text": "the program of rank 1 has ended", "gone": 1}])

    def test_whatever_the_order_each_tensor_runs_once(self):
        for seed in range(300):
            choose = random.Random(seed)
            size, count = choose.randint(1, 5), choose.randint(1, 12)
            core = self.core(size, fusion_bytes=choose.choice((0, 16, 1000)))
            left = {rank: choose.sample(range(count), count) for rank in range(size)}
            ran = []
            while any(left.values()):
                rank = choose.choice([rank for rank in left if left[rank]])
                submit(core, rank, tensor(str(left[rank].pop()), (choose.choice((1, 1)),)))
                if choose.random() < 0.3:
                    ran += sum(names(core.take(0)), [])
            ran += sum(names(core.take(0)), [])
            self.assertEqual(sorted(ran), sorted(map(str, range(count))), f"seed {seed}")


coordinator = load(sys.argv.pop())
unittest.main()

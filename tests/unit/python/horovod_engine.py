"""The end of Horovod's engine. usage: horovod_engine.py python/dlaunch"""

import sys
import types
import unittest

# The package without its __init__, which needs the built module.
package = types.ModuleType("dlaunch")
package.__path__ = [sys.argv.pop()]
sys.modules["dlaunch"] = package

from dlaunch.horovod._coordinator import Settings  # noqa: E402
from dlaunch.horovod._engine import Engine  # noqa: E402
from dlaunch.horovod._execute import Entry  # noqa: E402


def fails(rank):
    raise OSError(f"rank {rank} cannot be noted")


class End(unittest.TestCase):
    def test_callers_get_the_error_even_if_the_note_of_the_loss_fails(self):
        alone = types.SimpleNamespace(rank=0, size=1)
        engine = Engine(alone, None, Settings(fusion_bytes=1, warn_after=0.0, end_after=0.0), None, fails)
        entry = Entry({"set": 0, "kind": "allreduce", "name": "x"})
        engine._entries[entry.key] = entry
        engine._perform([{"do": "shutdown", "text": "the program of rank 1 has ended", "gone": 1}])
        with self.assertRaisesRegex(OSError, "rank 1 cannot be noted"):
            engine._deliver()
        self.assertTrue(entry.poll())
        with self.assertRaisesRegex(RuntimeError, "the program of rank 1 has ended"):
            entry.wait()


if __name__ == "__main__":
    unittest.main()

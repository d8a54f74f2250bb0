"""Output that tests/scenario/examples.py accepts and rejects. usage: examples_driver.py FOLDER_OF_EXAMPLES_PY"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1))
import examples  # noqa: E402


class Differences(unittest.TestCase):
    def right(self, expected, printed, complaints=""):
        self.assertIsNone(examples.differs(expected, printed, complaints))

    def wrong(self, expected, printed, complaints=""):
        self.assertIsNotNone(examples.differs(expected, printed, complaints))

    def test_lines_of_ranks_come_in_any_order(self):
        self.right(["[0] a", "[0] b", "[1] c"], "[1] c\n[0] a\n[0] b\n")
        self.wrong(["[0] a", "[0] b"], "[0] b\n[0] a\n")
        self.wrong(["b", "a"], "a\nb\n")

    def test_lines_that_are_missing_or_too_many(self):
        self.wrong(["[0] a"], "")
        self.wrong(["[0] a"], "[0] a\n[0] a\n")
        self.wrong(["[0] a"], "[0] a\n[1] a\n")
        self.wrong([], "a\n")
        self.right([], "")

    def test_dots_stand_for_something_within_a_line(self):
        self.right(["[0] loss …, … ms"], "[0] loss 0.25, 7 ms\n")
        self.wrong(["[0] loss …"], "[0] loss\n")
        self.wrong(["[0] a …"], "[0] b 1\n")
        self.wrong(["a.b"], "axb\n")

    def test_a_line_of_dots_stands_for_any_lines(self):
        self.right(["[0] a", "[0] …", "[0] b"], "[0] a\n[0] b\n")
        self.right(["[0] a", "[0] …", "[0] b"], "[0] a\n[0] x\n[0] y\n[0] b\n")
        self.wrong(["[0] a", "[0] …", "[0] b"], "[0] a\n[0] x\n")

    def test_blanks_are_one(self):
        self.right(["[0]   1    2"], "[0] 1 2\n")
        self.wrong(["[0] 12"], "[0] 1 2\n")

    def test_words_of_dlaunch_are_in_stderr(self):
        self.right(["dlaunch: … SIGKILL …"], "", "x\ndlaunch: rank 1 by SIGKILL after 3 s\n")
        self.wrong(["dlaunch: … SIGKILL …"], "", "dlaunch: rank 1 by SIGTERM after 3 s\n")
        self.wrong(["dlaunch: … SIGKILL …"], "dlaunch: rank 1 by SIGKILL after 3 s\n")


class Headers(unittest.TestCase):
    def run_file(self, name, text, only=""):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.write_text(text)
            return examples.run(path, only)

    def test_each_kind_of_comment(self):
        for name, text in (("a.py", '"""Words.\n\n    $ echo one two\n    one two\n"""\n$ false\n'),
                           ("a.cc", "// Words.\n//\n//   $ echo one two\n//   one two\n\n// $ false\n"),
                           ("a.c", "/* Words.\n *\n *   $ echo one two\n *   one two\n */\n"),
                           ("a.sh", "#!/bin/bash\n# Words.\n#\n#   $ echo one two\n#   one two\nfalse\n")):
            self.assertIsNone(self.run_file(name, text))
            self.assertIn("are others", self.run_file(name, text.replace("echo one", "echo 1")))

    def test_commands(self):
        self.assertIn("exit code 3", self.run_file("a.sh", "# $ echo a; exit 3\n# a\n"))
        self.assertIn("no command", self.run_file("a.sh", "# Words.\n"))
        self.assertIn("no command", self.run_file("a.sh", "# $ true\n"))
        self.assertIsNone(self.run_file("a.sh", "# $ echo a \\\n#   b\n# a b\n"))
        self.assertIsNone(self.run_file("a.sh", "# $ exit 3\n# $ echo a\n# a\n", only="^echo"))
        self.assertIsNone(self.run_file("a.sh", "# $ touch x\n# $ ls x\n# x\n"))


if __name__ == "__main__":
    unittest.main()

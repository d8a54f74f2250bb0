"""Compares the names of the contract that Python uses with base/contract.h. Run: contract.py SOURCE_DIR"""

import ast
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop())
VARIABLE = re.compile(r"DLAUNCH_[A-Z_]+")
# dlaunch_start.py runs at the start of each Python: it imports nothing of the package, which takes longer.
OWN_LITERALS = {"python/dlaunch/_contract.py", "python/dlaunch_start.py"}


def names_of_header():
    text = (SOURCE / "base/contract.h").read_text()
    return dict(re.findall(r'const char\* k(\w+) = "(DLAUNCH_\w+)";', text))


def literals(path):
    """The variables that a Python file names in strings other than docstrings."""
    tree = ast.parse(path.read_text())
    return {node.value for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)}


class Contract(unittest.TestCase):
    def test_header_is_read(self):
        self.assertEqual(names_of_header()["RoundDir"], "DLAUNCH_ROUND_DIR")
        self.assertGreater(len(names_of_header()), 20)

    def test_each_name_of_python_has_the_value_of_the_header(self):
        ours = {}
        exec((SOURCE / "python/dlaunch/_contract.py").read_text(), ours)
        names = {name: value for name, value in ours.items() if name.isupper()}
        self.assertTrue(names)
        for name, value in names.items():
            header_name = "".join(part.capitalize() for part in name.split("_"))
            self.assertEqual(names_of_header().get(header_name), value, name)

    def test_no_other_file_spells_a_variable(self):
        found = set()
        for path in (SOURCE / "python").rglob("*.py"):
            names = literals(path)
            where = str(path.relative_to(SOURCE))
            self.assertLessEqual(names, set(names_of_header().values()), where)
            if names:
                found.add(where)
        self.assertEqual(found, OWN_LITERALS)


if __name__ == "__main__":
    unittest.main()

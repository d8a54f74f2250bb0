"""Plants a fault in a small tree of its own, for the tests of the checkers beside this file."""

import pathlib
import subprocess
import sys
import tempfile


def complaints_about(checker, path, text, meson=False):
    """The lines of a checker, by its file's name, about a tree with this one file; meson: and a meson.build that
    names it."""
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if meson:
            (file.parent / "meson.build").write_text(f"files('{file.name}')\n")
        command = [sys.executable, pathlib.Path(__file__).with_name(checker), root]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return [] if run.returncode == 0 else run.stdout.splitlines()

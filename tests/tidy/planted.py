"""Plants a fault in a small tree of its own, for the tests of the checkers beside this file."""

import pathlib
import subprocess
import sys
import tempfile


def complaints_about(checker, path, text, meson=False, beside=()):
    """The lines of a checker, by its file's name, about a tree with this one file, and with a file of the same text for
    each name in beside; meson: and a meson.build that names them."""
    with tempfile.TemporaryDirectory() as root:
        file = pathlib.Path(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        names = [file.name, *beside]
        for name in names:
            file.with_name(name).write_text(text)
        if meson:
            (file.parent / "meson.build").write_text(f"files({', '.join(map(repr, names))})\n")
        command = [sys.executable, pathlib.Path(__file__).with_name(checker), root]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return [] if run.returncode == 0 else run.stdout.splitlines()

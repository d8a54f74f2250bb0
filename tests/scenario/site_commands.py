#!/usr/bin/env python3
"""Runs the commands of pages of Markdown and compares what they print; site_blocks.py says what a page may have.

A page's commands run one after the other in one shell, in a folder of their own that has the page's files and the
folder examples. A command has to end with 0 unless the next one is `echo $?`. It has to print the lines that follow it,
in any order, because ranks print at the same time. In an expected line "…" stands for any characters; a line "…" alone
for any lines.

usage: site_commands.py SOURCE PAGE…      PATH, PYTHONPATH and the like are the caller's.
"""

import collections
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import site_blocks

SECONDS = 400  # for a page


def matches(expected, printed):
    return re.fullmatch(".*".join(map(re.escape, expected.rstrip().split("…"))), printed) is not None


def missing(expected, printed):
    """The first expected line that was not printed, or a printed line that was not expected, or None."""
    rest = [line.rstrip() for line in printed]
    wanted = [line for line in expected if line.strip() and line.strip() != "…"]
    for line in sorted(wanted, key=lambda line: "…" in line):  # the exact ones first
        found = next((one for one in rest if matches(line, one)), None)
        if found is None:
            return f"did not print: {line}"
        rest.remove(found)
    rest = [line for line in rest if line.strip()]
    if rest and expected and not any(line.strip() == "…" for line in expected):
        return f"printed, which the page does not show: {rest[0]}"
    return None


def lacks(notes):
    """The Python modules and the commands that a block needs and that are not here. $SITE_WITHOUT: modules that are
    no use although they are here."""
    without = os.environ.get("SITE_WITHOUT", "").split()
    modules = [name for name in notes.get("needs", "").split() if name in without or not importlib.util.find_spec(name)]
    return modules + [name for name in notes.get("needs command", "").split() if shutil.which(name) is None]


def script_of(commands, out):
    """A shell script that leaves what the n-th command printed in OUT/n and its exit status in OUT/n.code."""
    script = "s=0\n"
    for number, command in enumerate(commands):
        script += f"{{ (exit $s)\n{command.text}\n}} >{out}/{number} 2>&1 </dev/null\n"
        script += f"s=$?; echo $s >{out}/{number}.code\n"
    return script


class Page:
    def __init__(self, path, source):
        self.path, self.source = path, source
        self.name = path.relative_to(source)
        self.counts, self.reasons, self.problems = collections.Counter(), [], []

    def fail(self, line, what):
        self.problems.append(f"{self.name}:{line}: {what}")

    def commands_to_run(self, folder):
        """Puts the page's files into the folder; returns its commands in order, those of notes included."""
        to_run = []
        for block in site_blocks.blocks(self.path.read_text(encoding="utf-8")):
            lacking = lacks(block.notes)
            if block.kind == "file":
                self.counts["files"] += 1
                if block.include:
                    shutil.copy(self.source / block.include.removeprefix("/source/"), folder / block.name)
                else:
                    (folder / block.name).write_text(block.content, encoding="utf-8")
            elif block.kind == "shown":
                self.counts["blocks only shown"] += 1
            elif "not run" in block.notes:
                self.counts["commands not run"] += len(block.commands)
                self.reasons.append(f"{self.name}:{block.line}: not run: {block.notes['not run']}")
                if not block.notes["not run"]:
                    self.fail(block.line, "a reason is missing")
            elif lacking:
                self.counts["commands skipped"] += len(block.commands)
                self.reasons.append(f"{self.name}:{block.line}: skipped without {' '.join(lacking)}")
            elif "run instead" in block.notes:
                self.counts["commands run by a stand-in"] += len(block.commands)
                to_run.append(site_blocks.Command(block.notes["run instead"], [], block.line))
            else:
                to_run += block.commands
                self.counts["commands run"] += len(block.commands)
        return to_run

    def judge(self, commands, out):
        for number, command in enumerate(commands):
            ended = out / f"{number}.code"
            code = ended.read_text().strip() if ended.exists() else None
            printed = []
            if (out / str(number)).exists():
                printed = (out / str(number)).read_text(errors="replace").splitlines()
            shown = "\n    ".join(printed[-15:])
            if code is None:
                return self.fail(command.line, f"did not end: {command.text}\n    {shown}")
            asked = number + 1 < len(commands) and commands[number + 1].text == "echo $?"
            lacking = missing(command.expected, printed)
            if code != "0" and not asked:
                self.fail(command.line, f"ended with {code}: {command.text}\n    {shown}")
            elif lacking:
                self.fail(command.line, f"{command.text}\n  {lacking}\n    {shown}")

    def run(self):
        with tempfile.TemporaryDirectory() as place:
            folder, out = pathlib.Path(place, "page"), pathlib.Path(place, "out")
            folder.mkdir(), out.mkdir()
            if (self.source / "examples").exists():
                (folder / "examples").symlink_to(self.source / "examples")
            try:
                commands = self.commands_to_run(folder)
            except site_blocks.Malformed as wrong:
                return self.fail(0, str(wrong))
            script = pathlib.Path(place, "script")
            script.write_text(script_of(commands, out), encoding="utf-8")
            shell = subprocess.Popen(["bash", script], cwd=folder, start_new_session=True,
                                     env=dict(os.environ, TMPDIR=place))
            try:
                shell.wait(SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                shell.wait()
            self.judge(commands, out)


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    pages = [Page(pathlib.Path(name).resolve(), source) for name in sys.argv[2:]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(Page.run, pages))
    total = sum((page.counts for page in pages), collections.Counter())
    for page in pages:
        print("\n".join(page.reasons + page.problems), end="\n" if page.reasons or page.problems else "")
    print(f"{len(pages)} pages: " + ", ".join(f"{count} {what}" for what, count in sorted(total.items())))
    return 1 if any(page.problems for page in pages) or not total["commands run"] else 0


if __name__ == "__main__":
    sys.exit(main())

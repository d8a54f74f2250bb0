#!/usr/bin/env python3
"""Plain English: refuses a few habits that make a sentence hard to read. Run: words.py SOURCE_DIR

The subject of a sentence is a thing with a name, and the verb is active. Only habits that are almost never right are
here. A test reads all sources, scripts, manuals and documents that git knows, or all files where there is no git."""

import pathlib
import re
import subprocess
import sys

# (pattern, what to write instead)
HABITS = [
    (r"\banew\b", "again, or from the start"),
    (r"\btold of\b", "say who reports what: 'dlaunch warns about a stopped worker'"),
    (r"(?<!each )(?<!one )(?<!some )(?<!any )(?<!none )(?<!many )(?<!all )(?<!both )(?<!most )\bof which\b",
     "two sentences, or 'whose'"),
    (r"\bof whom\b", "two sentences"),
    (r"\b(?:is|are|was) nobody\b(?!')", "name what is missing"),
    (r"\bnobody's\b", "name what it does not belong to"),
    (r"\bis not said\b", "say who does not say it"),
    (r"\bis ours, too\b", "name the owner"),
    (r"\b(?:is|are) told\b", "say who gets what: 'the ranks get an error', 'dlaunch reports the loss'"),
    (r"\b(?:is|are) said\b", "say which message, error or report says it"),
    (r"\bwhoever\b", "name the rank, the process or the user"),
    (r"\blook-alikes?\b", "imitation"),
    (r"\b(?:where|there)(?:of|unto|upon)\b", "'of it', 'of this'"),
]
PROSE = (".md", ".1", ".3", ".5", ".in", ".txt")
SOURCES = (".cc", ".h", ".hpp", ".c", ".py", ".pyi", ".sh")
# This file and its test hold the habits themselves.
OWN = ("tests/tidy/words.py", "tests/tidy/words_test.py")


def files_in(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return sorted(name for name in listed.stdout.decode().split("\0") if name)
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


def is_read(path):
    """Scripts have no ending, and stand in script/."""
    if path in OWN or path.startswith("build"):
        return False
    return path.endswith(PROSE + SOURCES) or (path.startswith("script/") and "." not in path.rsplit("/", 1)[1])


def faults_of(text):
    """(line number, the words, what to write instead) for each; a habit may go over the end of a line."""
    # The end of a line, with what begins the next one as a comment or string, counts as one blank.
    flat = re.sub(r"[ \t]*\"?[ \t]*\n[ \t]*(?:(?://+|#|\*|f?\")[ \t]*)?", "\n", text)
    for pattern, instead in HABITS:
        for found in re.finditer(pattern.replace(" ", r"[ \n]"), flat, re.I):
            yield flat.count("\n", 0, found.start()) + 1, " ".join(found.group().split()), instead


def main():
    root = pathlib.Path(sys.argv[1])
    problems, count = [], 0
    for path in files_in(root):
        if is_read(path) and (root / path).is_file():
            count += 1
            text = (root / path).read_text(errors="replace")
            problems += [f"{path}:{line}: {words!r}: {instead}" for line, words, instead in faults_of(text)]
    print("\n".join(problems) or f"{count} files in plain words")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

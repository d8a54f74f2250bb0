"""Runs examples as their headers say, and compares what they print with what stands there.

usage: examples.py [--jobs N] [--only REGEX] FILE...     --only: the commands that match it

A header is the text at the beginning of a file: a docstring, or comments. In it a line that begins with "$ " is a
command, which a shell runs in the folder of the file; with a backslash at its end it goes on in the next line. The lines below it, up to an empty line, are what it prints:
"…" stands for anything within a line, and a line of "…" alone for any number of lines. Blanks are compared as one.
Lines of different ranks ("[0] ", "[1] ") may come in any order. A line "dlaunch: …" is looked for in stderr.
Files run at the same time, so those of one folder write files of different names.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time


def header(path):
    """Its lines, without what makes them a comment, and without blanks at both ends."""
    lines = path.read_text().splitlines()
    if lines and lines[0].startswith('"""'):
        end = next(i for i, line in enumerate(lines) if i > 0 and line.endswith('"""'))
        return [line.strip() for line in lines[:end]]
    if lines and lines[0].startswith("/*"):
        end = next(i for i, line in enumerate(lines) if "*/" in line)
        return [re.sub(r"^/?\*+/?", "", line.strip()).strip() for line in lines[:end]]
    mark = "//" if path.suffix in (".cc", ".h", ".cu") else "#"
    found = []
    for line in lines:
        if not line.startswith(mark):
            break
        found.append(line.lstrip(mark + "!").strip())
    return found


def commands(path):
    """[(command, the lines below it)]"""
    found, current = [], None
    for line in header(path):
        if line.startswith("$ "):
            current = (line[2:], [])
            found.append(current)
        elif current and current[0].endswith("\\"):
            found[-1] = current = (current[0][:-1] + line, [])
        elif not line:
            current = None
        elif current:
            current[1].append(line)
    return found


def by_rank(lines):
    """The lines of each rank in their order; those without a rank are under ""."""
    found = {}
    for line in lines:
        prefix = re.match(r"\[\d+\]", line)
        found.setdefault(prefix.group() if prefix else "", []).append(" ".join(line.split()))
    return found


def pattern(lines):
    """An expression for these lines, each with its end of line."""
    parts = []
    for line in lines:
        words = re.escape(line).replace(re.escape("…"), ".+")
        parts.append(r"(?:.*\n)*?" if re.fullmatch(r"(\[\d+\] )?…", line) else words + r"\n")
    return "".join(parts)


def differs(expected, printed, complaints):
    """What is wrong with it, or None."""
    for line in (line for line in expected if line.startswith("dlaunch: ")):
        if not re.search(pattern([line]).removesuffix(r"\n"), complaints):
            return f"stderr lacks: {line}"
    want, got = by_rank(line for line in expected if not line.startswith("dlaunch: ")), by_rank(printed.splitlines())
    for prefix in sorted(set(want) | set(got)):
        if not re.fullmatch(pattern(want.get(prefix, [])), "".join(f"{line}\n" for line in got.get(prefix, []))):
            return f"the lines of {prefix or 'no rank'} are others"
    return None


def run(path, only):
    """Returns what is wrong, or None."""
    found = [(command, lines) for command, lines in commands(path) if re.search(only, command)]
    if not found or not any(lines for _, lines in found):
        return f"{path}: the header has no command with its output"
    for command, expected in found:
        begin = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=path.parent, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        print(f"{time.monotonic() - begin:6.1f} s  {path.name}: {command}", flush=True)
        wrong = f"exit code {done.returncode}" if done.returncode else differs(expected, done.stdout, done.stderr)
        if wrong:
            return (f"{path}: $ {command}\n{wrong}\n--- the header\n" + "\n".join(expected) +
                    f"\n--- stdout\n{done.stdout}--- stderr\n{done.stderr}")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        wrong = [text for text in pool.map(lambda path: run(path, options.only), options.files) if text]
    print("\n".join(wrong) or f"{len(options.files)} examples print what their headers say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

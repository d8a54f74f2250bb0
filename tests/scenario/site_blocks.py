"""The code blocks of a page of Markdown, as site_commands.py wants them.

A page has these kinds of blocks:
- ```console: lines that begin with "$ " are commands ("> " continues one), the other lines what they print.
- a block with a :caption:, and each {literalinclude}: a file of that name.
- ```text, ```json and the like: something that is shown.
A comment in the line above a block, "% …" of MyST or "<!-- … -->", says what is different about it:
- "% not run: REASON"     its commands cannot run here
- "% run instead: COMMAND"   stands for the block's commands, and has to end with 0
- "% needs: MODULE …", "% needs command: NAME"   without these the block is skipped
- "% shown"               a program that is no file, such as a part of one shown before
"""

import dataclasses
import re

FENCE = re.compile(r"^(`{3,})(?:\{([\w-]+)\})? ?(.*)$")
NOTE = re.compile(r"^(?:% |<!-- )(not run|run instead|needs command|needs|shown):? ?(.*?)(?: -->)?$")
OPTION = re.compile(r"^:([\w-]+): ?(.*)$")
PROGRAMS = ("python", "cpp", "c", "bash", "sh", "toml", "yaml")


class Malformed(Exception):
    pass


@dataclasses.dataclass
class Command:
    text: str
    expected: list
    line: int


@dataclasses.dataclass
class Block:
    kind: str  # "console", "file", "shown"
    line: int
    notes: dict
    commands: list = dataclasses.field(default_factory=list)
    name: str = ""
    content: str = ""  # of a file that stands in the page
    include: str = ""  # the path of one that does not


def commands_of(lines, first_line):
    commands = []
    for number, line in enumerate(lines, first_line):
        if line.startswith("$ "):
            commands.append(Command(line[2:], [], number))
        elif line.startswith("> ") and commands and not commands[-1].expected:
            commands[-1].text += "\n" + line[2:]
        elif commands:
            commands[-1].expected.append(line)
        elif line.strip():
            raise Malformed(f"line {number}: output before the first command")
    return commands


def block_of(directive, argument, options, lines, line, notes):
    language = argument if directive in (None, "", "code-block") else ""
    if directive == "literalinclude":
        return Block("file", line, notes, name=argument.rsplit("/", 1)[-1], include=argument)
    if language == "console":
        return Block("console", line, notes, commands=commands_of(lines, line + 1))
    if options.get("caption"):
        return Block("file", line, notes, name=options["caption"], content="\n".join(lines) + "\n")
    if language in PROGRAMS and "shown" not in notes:
        raise Malformed(f"line {line}: a block of {language} that is neither a file (:caption:) nor marked as shown")
    return Block("shown", line, notes)


def blocks(text):
    """The blocks of a page, in its order."""
    found, notes = [], {}
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        note, fence = NOTE.match(line), FENCE.match(line)
        if note:
            notes[note.group(1)] = note.group(2)
            continue
        if fence:
            options, inside = {}, []
            for _, line in lines:
                if line.startswith(fence.group(1)):
                    break
                option = OPTION.match(line)
                if option and fence.group(2) and not inside:
                    options[option.group(1)] = option.group(2)
                else:
                    inside.append(line)
            if fence.group(2) in (None, "code-block", "literalinclude"):
                found.append(block_of(fence.group(2), fence.group(3).strip(), options, inside, number, notes))
        elif notes and line.strip():
            raise Malformed(f"line {number}: a note above something that is no block")
        if line.strip():
            notes = {}
    return found

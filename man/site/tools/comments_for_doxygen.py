#!/usr/bin/env python3
"""What Doxygen reads in place of a public header: the same code, with its comments marked for Doxygen.

The headers are written for people who read them in an editor. Doxygen takes only comments that bear a mark,
reads them as Markdown, and joins indented lists into a paragraph. This filter marks each comment, protects the
characters that mean something to Doxygen, and makes each indented list a code block. It also writes
`typedef enum x {…} x;` as `enum x {…};`, because the site would declare x twice otherwise.

usage: comments_for_doxygen.py HEADER > OUT
"""

import re
import sys

COMMENT = re.compile(r"/\*.*?\*/|(?:^[ ]*//[^\n]*\n)+|//[^\n]*", re.S | re.M)
TYPEDEF = re.compile(r"^typedef (enum|struct) (\w+) \{(.*?)^\} \2;", re.S | re.M)
SPECIAL = re.compile(r"([\\@<>#&*])")
URL = re.compile(r"\bfile://(?!/)")  # Doxygen makes a link of it, which leads nowhere
ENDS_A_BLOCK = re.compile(r"^(\}|#)")  # "}  // namespace dl" says nothing that the site needs


def protected(text):
    return URL.sub("`file://`", SPECIAL.sub(r"\\\1", text))


def markdown_of(lines):
    """The lines of a comment as Markdown. A list is what is indented more than the text."""
    out, in_list = [], False
    for line in lines:
        listed = line.startswith("  ") or (in_list and not line)
        if listed != in_list:
            out.append("")
        in_list = listed
        out.append("    " + line if listed else protected(line))
    return out


def lines_of(comment):
    if comment.startswith("/*"):
        inside = [re.sub(r"^ *\* ?", "", line) for line in comment[2:-2].split("\n")]
        least = min((len(line) - len(line.lstrip()) for line in inside[1:] if line.strip()), default=0)
        return [inside[0].strip()] + [line[least:].rstrip() for line in inside[1:]]
    lines = [line.lstrip()[2:] for line in comment.rstrip("\n").split("\n")]
    return [line[1:] if line.startswith(" ") else line for line in lines]


def marked(comment, code_before):
    """The comment with the mark for what follows it, or for the code before it on its line."""
    lines = lines_of(comment)
    if ENDS_A_BLOCK.match(code_before):
        return ""
    if code_before:
        return "/**< " + protected(" ".join(line.strip() for line in lines)).strip() + " */"
    return "/**\n" + "\n".join(markdown_of(lines)).rstrip() + "\n*/" + ("\n" if comment.endswith("\n") else "")


def marked_header(text):
    text = TYPEDEF.sub(r"\1 \2 {\3};", text)

    def replace(found):
        line_begin = text.rfind("\n", 0, found.start()) + 1
        out = marked(found.group(), text[line_begin:found.start()].strip())
        return out.replace("/**\n", "/** \\file\n", 1) if found.start() == 0 else out

    return COMMENT.sub(replace, text)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print(marked_header(header.read()), end="")

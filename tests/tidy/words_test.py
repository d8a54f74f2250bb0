#!/usr/bin/env python3
"""Plants each bad habit in a small tree of its own, in each kind of file: words.py must report it, and nothing else.
Run: words_test.py"""

import sys

from planted import complaints_about

# (file, its text, the line and words of the complaint; None: allowed)
PLANTED = [
    ("ring/a.cc", "int x;  // begins anew\n", "1: 'anew'"),
    ("ring/a.h", "// A rank that was told\n// of a loss.\n", "1: 'told of'"),
    ("cli/a.cc", 'warn("ranks, of "\n     "which one is lost");\n', "1: 'of which'"),
    ("CHANGELOG.md", "# Changes\n\n- A worker was told of after a minute.\n", "3: 'told of'"),
    ("man/a.1", ".Sh A\nWhat ends there is\nnobody's child.\n", "3: \"nobody's\""),
    ("man/a.1.in", ".Sh A\nWho has left is nobody.\n", "2: 'is nobody'"),
    ("python/a.py", '"""What is not said comes from the environment."""\n', "1: 'is not said'"),
    ("tests/scenario/a.sh", "# Ranks, of whom one ends.\n", "1: 'of whom'"),
    ("script/bench", "#!/bin/sh\n# The rate, whereof half is lost.\n", "2: 'whereof'"),
    ("elastic/a.h", "// The end of what started us is ours, too.\n", "1: 'is ours, too'"),
    ("ring/b.h", "// A rank that waits is\n// told that its peer has died.\n", "1: 'is told'"),
    ("python/b.py", "# The names are said in errors.\n", "1: 'are said'"),
    ("tests/unit/ring/a.cc", "// Whoever comes late waits.\n", "1: 'Whoever'"),
    ("tests/support/a.h", "// Look-alikes of CUDA.\n", "1: 'Look-alikes'"),
    ("README.md", "Two hosts, each of which runs workers. Nobody is left. It is not said lightly\n", "1: 'is not said'"),
    ("README.md", "Two hosts, each of which runs workers.\nA canewort, a told offence.\n", None),
    ("LICENSE", "Anew.\n", None),
    ("script/a.svg", "<text>anew</text>\n", None),
]


def main():
    wrong = 0
    for path, text, complaint in PLANTED:
        found = complaints_about("words.py", path, text)
        right = not found if complaint is None else len(found) == 1 and found[0].startswith(f"{path}:{complaint}: ")
        if not right:
            wrong += 1
            print(f"{path} with {text!r}: expected {complaint}, found {found}")
    print(f"{len(PLANTED)} files planted, {wrong} judged wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Docstrings of the package for Python, which are plain text, as reStructuredText for Sphinx.

Lines that are not indented are paragraphs, "- " begins an item of a list, and what is indented otherwise is shown as it
is. Whatever a docstring has, the result is valid: each paragraph and each item becomes one line.
"""

import re

# What reStructuredText would take for emphasis, a reference, a substitution, or a list at the beginning of a line.
SPECIAL = re.compile(r"`([^`\s][^`]*)`|([\\*`|_]|^(?:[-+•]|\w+[.)])(?= ))")


def escaped(text):
    """`code` stays code."""
    return SPECIAL.sub(lambda found: f"``{found.group(1)}``\\ " if found.group(1) else "\\" + found.group(2), text)


def blocks_of(lines):
    """[(kind, lines)]; kind: "text", "item" or "shown". A blank line ends a text or an item, but not what is shown."""
    blocks = []
    for line in lines:
        kind, body = blocks[-1] if blocks else ("", [])
        if not line.strip():
            if kind == "shown":
                body.append("")
            else:
                blocks.append(("", []))
        elif line.startswith("- "):
            blocks.append(("item", [line[2:]]))
        elif line.startswith(" "):
            if kind in ("item", "shown"):
                body.append(line)
            else:
                blocks.append(("shown", [line]))
        elif kind == "text":
            body.append(line)
        else:
            blocks.append(("text", [line]))
    return [block for block in blocks if block[0]]


def as_restructured_text(app, what, name, obj, options, lines):
    """Sphinx's event autodoc-process-docstring."""
    out, before = [], ""
    for kind, body in blocks_of(lines):
        if kind != before or kind != "item":
            out.append("")
        if kind == "shown":
            out += ["::", ""] + [line and "    " + line for line in body]
        else:
            text = escaped(" ".join(line.strip() for line in body))
            out.append("* " + text if kind == "item" else text)
        before = kind
    lines[:] = out + [""]


def with_return_annotation(app, what, name, obj, options, signature, return_annotation):
    """Sphinx's event autodoc-process-signature: autoapi's directives leave out what a function returns."""
    returned = getattr(obj, "return_annotation", None)
    return (signature, returned) if signature and returned else None

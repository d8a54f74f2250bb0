"""Docstrings of the package for Python, which are plain text, as reStructuredText for Sphinx."""

import re

# What reStructuredText would take for emphasis, a reference or a substitution.
SPECIAL = re.compile(r"([\\*`|_])")


def as_restructured_text(app, what, name, obj, options, lines):
    """Sphinx's event autodoc-process-docstring: text that is indented by four blanks or more is a program."""
    out, in_program = [], False
    for line in lines:
        program = line.startswith("    ") or (in_program and not line)
        if program and not in_program:
            out += ["::", ""]
        if in_program and not program:
            out.append("")
        in_program = program
        out.append(line if program else SPECIAL.sub(r"\\\1", line))
    lines[:] = out


def with_return_annotation(app, what, name, obj, options, signature, return_annotation):
    """Sphinx's event autodoc-process-signature: autoapi's directives leave out what a function returns."""
    returned = getattr(obj, "return_annotation", None)
    return (signature, returned) if signature and returned else None

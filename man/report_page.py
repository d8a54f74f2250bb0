#!/usr/bin/env python3
"""Writes dlaunch-report(5): its frame, with the members of the report as its JSON schema describes them.

Run: report_page.py dlaunch-report.5.in schema/report.schema.json
A line "@MEMBERS name@" of the frame stands for those of the object of that name in $defs, or, as
"@MEMBERS@", of the report itself. An object of the schema that the frame leaves out is an error.
"""

import json
import pathlib
import re
import sys


def roff(text):
    """The text in a line of mdoc(7), where nothing of it is a macro or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", text)


def words(what):
    """The type of a value."""
    if "$ref" in what:
        return "object: " + what["$ref"].rpartition("/")[2]
    if "const" in what:
        return json.dumps(what["const"])
    if "enum" in what:
        return "string"
    kind = what.get("type", "any value")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    return f"array of {words(what['items'])}" if kind == "array" else kind


def members(schema, inner):
    """The members of an object in the order of the schema, as a list of mdoc(7)."""
    required = schema.get("required", [])
    lines = [".Bl -tag -width Ds"]
    for name, what in schema["properties"].items():
        always = ", always there" if name in required else ""
        lines.append(f".It Va {name} Pq {roff(words(what) + always)}")
        described = what.get("description") or inner.get(what.get("$ref", ""), {})["description"]
        lines.append(roff(described[0].upper() + described[1:]) + ".")
        if "enum" in what:
            lines += [".Pp", "One of"] + [f".Cm {word}" + (" ," if word != what["enum"][-1] else " .") for word in what["enum"]]
        if what.get("type") == "object":
            lines += [".Pp", "It has:"] + members(what, inner)
    return lines + [".El"]


def main():
    frame, schema = (pathlib.Path(name).read_text() for name in sys.argv[1:3])
    schema = json.loads(schema)
    inner = {"#/$defs/" + name: what for name, what in schema["$defs"].items()}
    objects = {"": schema, **schema["$defs"]}

    def expand(match):
        return "\n".join(members(objects.pop((match.group(1) or "").strip()), inner))

    page = re.sub(r"^@MEMBERS( \w+)?@$", expand, frame, flags=re.M)
    if objects:
        sys.exit(f"the frame has no @MEMBERS {', '.join(objects)}@")
    sys.stdout.write(page)


if __name__ == "__main__":
    main()

"""Tutorial pages out of examples/: a page for each row of the tables in examples/README.md.

A page shows the row's programs. Each program's own header is the text above it, and files of the same folder that it
includes or imports follow. All of them are shown by reference, through the link source. A subfolder with a README.md
of its own gets a page that includes it, and its programs.
"""

import ast
import re

from option_pages import literal

LANGUAGES = {".py": "python", ".cc": "cpp", ".c": "c", ".h": "cpp", ".cu": "cuda", ".sh": "bash",
             ".sbatch": "bash", ".yaml": "yaml"}
INDEX = """# Tutorials from the examples

Each page has one subject, and the programs of the folder `examples/` that teach it, in C++ and in Python.
An installation has the same files in `share/doc/dlaunch/examples`.
The text is the header of each program, with the command and what it prints. The tests run all of them and compare.
"""
ROW = re.compile(r"^\| (?P<about>[^|]+) \|(?P<files>.*)\|[^|]*\|$")
FILE = re.compile(r"[\w/]+\.(?:cc|c|cu|py|sh|sbatch|yaml)\b")
USES = re.compile(r'^#include "([^"/]+)"|^(?:import|from) (\w+)', re.M)


def header_of(path):
    """The comment or docstring at a program's beginning, as lines, and the number of the line after it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        docstring = ast.get_docstring(tree)
        if docstring:
            return docstring.split("\n"), tree.body[0].end_lineno + 1
    if text.startswith("/*"):
        comment = text[:text.index("*/")]
        lines = [re.sub(r"^(/\*| \*) ?", "", line) for line in comment.split("\n")]
        return lines, len(lines) + 1
    mark = "#" if path.suffix in (".py", ".sh", ".sbatch", ".yaml") else "//"
    lines, number = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith(mark):
            break
        if not line.startswith("#!"):
            lines.append(re.sub(rf"^{mark} ?", "", line))
    return lines, number


def markdown(lines):
    """Plain text as Markdown: what is indented is shown as it is, without the indentation."""
    out, block = [], []
    for line in lines + [""]:
        if line.startswith("  ") or (block and not line and line is not lines[-1]):
            block.append(line)
            continue
        if any(block):
            out += shown(block)
        block = []
        out.append(literal(line))
    if any(block):
        out += shown(block)
    return "\n".join(out)


def shown(block):
    while not block[-1]:
        block.pop()
    least = min(len(line) - len(line.lstrip()) for line in block if line)
    language = "console" if block[0].lstrip().startswith("$ ") else "text"
    return [f"```{language}", *(line[least:] for line in block), "```", ""]


def used_by(path):
    """The files of the same folder that a program includes or imports."""
    names = (header or f"{module}.py" for header, module in USES.findall(path.read_text(encoding="utf-8")))
    return [path.parent / name for name in names if (path.parent / name).exists()]


def program(examples, path):
    header, after = header_of(path)
    return (f"\n## {path.name}\n\n{markdown(header)}\n"
            f"\n```{{literalinclude}} /source/examples/{path.relative_to(examples)}\n"
            f":language: {LANGUAGES[path.suffix]}\n:lines: {after}-\n```\n")


def page(examples, about, files):
    helpers = [helper for path in files for helper in used_by(path)]
    out = f"# {about[0].upper()}{about[1:]}\n"
    return out + "".join(program(examples, path) for path in dict.fromkeys(files + helpers))


def sections(examples):
    """title -> [(what it teaches, its programs)], as the tables of README.md have them."""
    found, rows = {}, None
    for line in (examples / "README.md").read_text(encoding="utf-8").splitlines():
        row = ROW.match(line)
        if line.startswith("## "):
            rows = found.setdefault(line[3:], [])
        elif row and rows is not None and FILE.search(row["files"]):
            rows.append((row["about"], [examples / name for name in FILE.findall(row["files"])]))
    return found


def tree(caption, pages):
    return f"\n```{{toctree}}\n:maxdepth: 1\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"


def write(folder, source):
    examples = source / "examples"
    folder.mkdir(exist_ok=True)
    index, count = INDEX, 0
    for title, rows in sections(examples).items():
        stems = []
        for about, files in rows:
            (folder / f"{files[0].stem}.md").write_text(page(examples, about, files), encoding="utf-8")
            stems.append(files[0].stem)
        index += tree(title, stems) if stems else ""
        count += len(stems)
    readmes = sorted(examples.glob("*/README.md"))
    for readme in readmes:
        name = readme.parent.name
        text = f"```{{include}} /source/examples/{name}/README.md\n```\n"
        text += "".join(program(examples, path) for path in sorted(readme.parent.glob("*.py")))
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    if readmes:
        index += tree("Larger examples", [readme.parent.name for readme in readmes])
    if count < 10:
        raise SystemExit(f"example_pages: only {count} rows found in the tables of examples/README.md")
    (folder / "index.md").write_text(index, encoding="utf-8")

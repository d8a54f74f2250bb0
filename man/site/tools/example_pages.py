"""Tutorial pages out of examples/: each program's own header is its page's text, and the program follows it.

Programs that do the same in several languages (hello.py, hello.cc, hello.c) share a page. Subfolders that have a
README.md get a page that includes it. The files themselves are shown by reference, through the link source.
"""

import ast
import re

from option_pages import literal

LANGUAGES = {".py": "python", ".cc": "cpp", ".c": "c", ".cu": "cuda", ".sh": "bash", ".yaml": "yaml"}
INDEX = """# Tutorials from the examples

Each page is one program of the folder `examples/`, which an installation has, too.
The text is the program's own header. The tests run every one of these programs.

```{{toctree}}
:maxdepth: 1

{pages}
```
"""


def header_of(path):
    """The comment or docstring at a program's beginning, as lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        docstring = ast.get_docstring(ast.parse(text))
        if docstring:
            return docstring.split("\n")
    mark = "#" if path.suffix in (".py", ".sh", ".yaml") else "//"
    lines = []
    for line in text.split("\n"):
        if line.startswith("#!"):
            continue
        if not line.startswith(mark):
            break
        lines.append(re.sub(rf"^{mark} ?", "", line))
    return lines


def markdown(lines):
    """Plain text as Markdown: what is indented is shown as it is."""
    out, shown = [], False
    for line in lines:
        indented = line.startswith("  ") or (shown and not line)
        if indented != shown:
            out.append("```text" if indented else "```\n")
        shown = indented
        out.append(line if indented else literal(line))
    return "\n".join(out + ["```"] * shown)


def programs(folder):
    """stem -> its files, of all programs in a folder. A file without a header is part of others."""
    found = {}
    order = list(LANGUAGES)
    files = [path for path in folder.iterdir() if path.suffix in LANGUAGES]
    for path in sorted(files, key=lambda path: (path.stem, order.index(path.suffix))):
        if any(line.strip() for line in header_of(path)):
            found.setdefault(path.stem, []).append(path)
    return found


def page(stem, files):
    out = f"# {stem.replace('_', ' ').capitalize()}\n"
    for path in files:
        out += f"\n## {path.name}\n\n{markdown(header_of(path))}\n"
        out += f"\n```{{literalinclude}} /source/examples/{path.name}\n:language: {LANGUAGES[path.suffix]}\n```\n"
    return out


def write(folder, source):
    examples = source / "examples"
    pages = []
    for stem, files in programs(examples).items():
        (folder / f"{stem}.md").write_text(page(stem, files), encoding="utf-8")
        pages.append(stem)
    for readme in sorted(examples.glob("*/README.md")):
        name = readme.parent.name
        (folder / f"{name}.md").write_text(f"```{{include}} /source/examples/{name}/README.md\n```\n", encoding="utf-8")
        pages.append(name)
    if len(pages) < 5:
        raise SystemExit(f"example_pages: only {len(pages)} programs found in {examples}")
    (folder / "index.md").write_text(INDEX.format(pages="\n".join(pages)), encoding="utf-8")

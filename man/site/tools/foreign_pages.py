"""A table of every option of another launcher, and what becomes of it here.

Which options a launcher has stands in the unit test of the tables (kExpected), which follows each launcher's own
list. What dlaunch does with them is what `dlaunch help` says.
"""

import re

import option_pages
from option_pages import literal

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun")
FATES = {
    "ours": "Taken",
    "nothing": "Accepted, and they change nothing",
    "refused": "Refused",
}
ROW = re.compile(r'\{"(\w+)", Fate::(\w+),\s*((?:"[^"]*"\s*)+)\}')


def listed(source):
    """launcher -> fate -> the names of its options, without dashes, as the unit test lists them."""
    text = (source / "tests/unit/cli/foreign_options_test.cc").read_text(encoding="utf-8")
    found = {launcher: {} for launcher in LAUNCHERS}
    for launcher, fate, strings in ROW.findall(text):
        names = "".join(re.findall(r'"([^"]*)"', strings)).split()
        found[launcher].setdefault(fate, []).extend(name.split("/")[0] for name in names)
    for launcher, fates in found.items():
        if set(fates) != set(FATES):
            raise SystemExit(f"foreign_pages: no complete list of {launcher}'s options in the unit test")
    return found


def explained(text):
    """name -> what `dlaunch help coming-from-…` says of it."""
    said, names, pending = {}, [], True
    for line in text.splitlines():
        if re.match(r"^ {2}--?\S+$", line):
            if not pending:
                names = []
            names.append(line.strip().lstrip("-"))
            pending = True
        elif line.startswith(" " * 6):
            for name in names:
                said[name] = (said.get(name, "") + " " + line.strip()).strip()
            pending = False
    return said


def dashed(name):
    return ("--" if len(name) > 1 else "-") + name


def meaning(dlaunch, own_page, said, name):
    """What an option comes to, as Markdown in one line. own_page: the options to which one can link."""
    if name in said:
        return literal(said[name])
    own = option_pages.about(dlaunch, dashed(name))
    if own is None:  # an option that another launcher has, too
        shared = re.match(r"^-\S+ of \w+: (.*)", " ".join(dlaunch.says("help", dashed(name)).split()))
        if shared is None:
            raise SystemExit(f"foreign_pages: dlaunch help {dashed(name)} describes no option")
        return literal(shared.group(1))
    text = re.sub(r" ?(Other names|Environment): .*", "", own.text)
    link = f"{{option}}`dlaunch {own.name}`" if own.name in own_page else f"`{own.name}`"
    return f"{link}: {literal(text)}"


def table(dlaunch, launcher, fates):
    said = explained(dlaunch.says("help", f"coming-from-{launcher}"))
    own_page = {option.name for options in option_pages.listed(dlaunch).values() for option in options}
    out = ""
    for fate, heading in FATES.items():
        out += f"\n### {heading}\n\n| {launcher} | dlaunch |\n|---|---|\n"
        for name in dict.fromkeys(fates[fate]):
            out += f"| `{dashed(name)}` | {meaning(dlaunch, own_page, said, name)} |\n"
    return out


def write(folder, dlaunch, source):
    """A file for each launcher, which the hand-written page of that launcher includes."""
    folder.mkdir(parents=True, exist_ok=True)
    for launcher, fates in listed(source).items():
        (folder / f"{launcher}.md").write_text(table(dlaunch, launcher, fates), encoding="utf-8")

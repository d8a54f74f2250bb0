"""The page of all options of dlaunch, from `dlaunch --help-all`, and what other pages want to know of an option."""

import re

TITLE = re.compile(r"^([A-Z].*):$")
HEAD = re.compile(r"^ {2}(?:(-\w), | {4})(--[\w-]+)(?: (\S+))?(?: {2,}(.*))?$")

PREFACE = """# Options of dlaunch

This page lists the options of `dlaunch` by group. `dlaunch help NAME` prints the text of one option.
[The manual page](man/dlaunch.1.md) has the rules that concern several options.
A flag comes before a variable, a variable before the file of {option}`dlaunch --config`, and that before the default.
The default stands in square brackets.

```{program} dlaunch
```
"""


class Option:
    def __init__(self, short, name, value, first_line):
        self.short, self.name, self.value = short, name, value
        self.lines = [first_line] if first_line else []

    @property
    def text(self):
        return " ".join(self.lines)

    def words(self):
        """As one writes it: "-n N, --np N"."""
        return ", ".join(name + (f" {self.value}" if self.value else "") for name in (self.short, self.name) if name)


def groups_in(text):
    """title of a group -> its options, in the order of a text of dlaunch's help. "": those before the first title."""
    groups = {"": []}
    group = groups[""]
    for line in text.splitlines():
        title, head = TITLE.match(line), HEAD.match(line)
        if title:
            group = groups.setdefault(title.group(1), [])
        elif head:
            group.append(Option(*head.groups()))
        elif group and line.startswith(" " * 38):
            group[-1].lines.append(line.strip())
    return {title: options for title, options in groups.items() if options}


def listed(dlaunch):
    """The groups of all options that the page has."""
    groups = groups_in(dlaunch.says("--help-all"))
    if len(groups) < 5:
        raise SystemExit("option_pages: dlaunch --help-all lists its options in a form that is not known here")
    return groups


def about(dlaunch, name):
    """The option of dlaunch that has this name, which may be another launcher's, or None."""
    found = groups_in(dlaunch.says("help", name))
    return found[""][0] if found else None


def literal(text):
    """Plain text in which Markdown finds nothing to interpret but `code`."""
    return re.sub(r"(`[^`]+`)|([\\`*\[\]<>|#])", lambda found: found.group(1) or "\\" + found.group(2), text)


def entry(dlaunch, option):
    """An option of a group. What its own help says beside has the other names and the variable."""
    own = about(dlaunch, option.name)
    text = re.sub(r"(?:^| )Other names: .*| ?Environment: .*", "", own.text)
    more = re.findall(r"(Other names: .*?|Environment: \S+)(?= Environment:|$)", own.text)
    lines = [literal(text) + "."] + ["", *(literal(item) + "." for item in more)] * bool(more)
    return f"`````{{option}} {option.words()}\n" + "\n".join(lines) + "\n`````\n"


def page(dlaunch):
    return PREFACE + "".join(f"\n## {title}\n\n" + "\n".join(entry(dlaunch, option) for option in options)
                             for title, options in listed(dlaunch).items())

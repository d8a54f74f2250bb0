"""The manual pages as pages of the site: mandoc's HTML, a heading of the site for each section."""

import re
import subprocess

# The page, and what it is about.
PAGES = {
    "dlaunch.1": "the launcher",
    "dlaunchctl.1": "a running job",
    "dlaunch-bench.1": "measuring",
    "dlring.3": "collectives for C",
    "dlelastic.3": "state that survives, for C",
    "dlaunch-report.5": "the report as JSON",
}
# Sections of dlaunch(1) that people look up by themselves.
PARTS = {"exit-codes.md": ("Exit codes", "EXIT_STATUS"), "environment.md": ("Environment variables", "ENVIRONMENT")}
SECTION = re.compile(r'<section class="Sh">\s*<h1 class="Sh" id="([^"]*)">.*?</h1>(.*?)</section>'
                     r'(?=\s*(?:<section class="Sh">|</div>))', re.S)
LINK = re.compile(r'<a class="Xr" href="([^"]*)\.html">(.*?)</a>', re.S)


def title_of(section):
    return section.replace("_", " ").capitalize()


def sections_of(name, build, source):
    """section -> its HTML. Links to manual pages that are not ours become text."""
    built = build / "man" / name
    file = built if built.exists() else source / "man" / name
    html = subprocess.run(["mandoc", "-Thtml", "-Ofragment,man=%N.%S.html", file], check=True, text=True,
                          capture_output=True).stdout
    sections = {}
    for anchor, body in SECTION.findall(html):
        body = LINK.sub(lambda found: found.group() if found.group(1) in PAGES else found.group(2), body)
        sections[anchor] = body.strip()
    if len(sections) < 4:
        raise SystemExit(f"man_pages: {len(sections)} sections found in {name}; mandoc's HTML has changed")
    return sections


def raw(html, anchor):
    html = f'<span id="{anchor}"></span>\n{html}'
    return f'```{{raw}} html\n<div class="manual">\n{html}\n</div>\n```\n'


def page_of(name, about, sections):
    page = f"# {name[:-2]}({name[-1]}): {about}\n"
    return page + "".join(f"\n## {title_of(anchor)}\n\n{raw(html, anchor)}" for anchor, html in sections.items())


def alone(name, html):
    """A section as a page outside of folder/man: what it links to stands there."""
    html = html.replace('class="Xr" href="', 'class="Xr" href="man/')
    return re.sub(r'href="#([^"]*)"', lambda found: found.group() if f'id="{found.group(1)}"' in html
                  else f'href="man/{name}.html#{found.group(1)}"', html)


def write(folder, build, source):
    """The pages of the manual in folder/man, and two of dlaunch(1)'s sections as pages of their own in folder."""
    (folder / "man").mkdir(parents=True, exist_ok=True)
    for name, about in PAGES.items():
        sections = sections_of(name, build, source)
        (folder / "man" / f"{name}.md").write_text(page_of(name, about, sections), encoding="utf-8")
        if name == "dlaunch.1":
            for page, (title, section) in PARTS.items():
                text = raw(alone(name, sections[section]), section)
                (folder / page).write_text(f"# {title}\n\n{text}", encoding="utf-8")

#!/usr/bin/env python3
"""Checks a built site: every link leads to a page and an anchor that exist, and no page fetches anything from
elsewhere when it is read. Links to other sites are counted and listed, not followed.

usage: check_site.py HTML_FOLDER [--external]     --external: list the links to other sites
"""

import collections
import html.parser
import pathlib
import re
import sys
import urllib.parse

# What a browser fetches by itself, by tag and attribute.
FETCHED = {("link", "href"), ("object", "data")} | {
    (tag, "src") for tag in ("script", "img", "iframe", "source", "video", "audio", "embed")}
KINDS_OF_LINK_NOT_FETCHED = {"canonical", "next", "prev", "author", "index", "search", "alternate"}
ELSEWHERE = re.compile(r"^(?:https?:)?//")
FETCHED_BY_CSS = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^'\")]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        for name, value in attributes:
            if not value:
                continue
            if (tag, name) in FETCHED and not KINDS_OF_LINK_NOT_FETCHED & set((given.get("rel") or "").split()):
                self.fetched.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def check(folder):
    """(problems, links to other sites, number of links within the site, number of pages)"""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    problems, external, internal = [], collections.Counter(), 0
    for path, page in sorted(pages.items()):
        name = path.relative_to(folder)
        problems += [f"{name}: fetches {where} from elsewhere" for where in page.fetched if ELSEWHERE.match(where)]
        for link in page.links + [where for where in page.fetched if not ELSEWHERE.match(where)]:
            if ELSEWHERE.match(link):
                external[link] += 1
                continue
            if link.startswith(("mailto:", "data:")):
                continue
            internal += 1
            where, anchor = urllib.parse.urldefrag(link.split("?")[0])
            target = (path.parent / urllib.parse.unquote(where)).resolve() if where else path
            if not target.exists():
                problems.append(f"{name}: {link} leads to no file")
            elif anchor and target in pages and urllib.parse.unquote(anchor) not in pages[target].anchors:
                problems.append(f"{name}: {link} leads to no anchor of that page")
    for path in folder.rglob("*.css"):
        for found in FETCHED_BY_CSS.finditer(path.read_text(encoding="utf-8")):
            problems.append(f"{path.relative_to(folder)}: fetches {found.group(1) or found.group(2)} from elsewhere")
    if not (folder / "searchindex.js").exists():
        problems.append("there is no search index")
    return problems, external, internal, len(pages)


def main(folder, list_external=False):
    problems, external, internal, pages = check(pathlib.Path(folder).resolve())
    for line in problems + (sorted(external) if list_external else []):
        print(line)
    print(f"{pages} pages, {internal} links within the site, {len(external)} addresses elsewhere, "
          f"{len(problems)} problems")
    return 1 if problems or pages < 10 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--external" in sys.argv[2:]))

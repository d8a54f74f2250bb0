#!/usr/bin/env python3
"""Builds the documentation site, and fails at the first warning or broken link. script/docs runs it.

usage: build_site.py SOURCE BUILD OUT

SOURCE: the source folder. BUILD: a build folder, which has cli/dlaunch and man/. OUT: gets the site as html/, and
what it was made of beside that.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import check_site
import cpp_pages
import example_pages
import foreign_pages
import man_pages
import option_pages
from ask import Dlaunch


def assemble(source, build, out):
    """The sources of the site, hand-written and generated, in out/pages; Doxygen's XML in out/doxygen."""
    pages = out / "pages"
    for folder in ("pages", "doxygen", "cache", "html"):  # and nothing else that may be there
        shutil.rmtree(out / folder, ignore_errors=True)
    shutil.copytree(source / "man" / "site", pages, ignore=shutil.ignore_patterns("__pycache__", "*.txt"))
    (pages / "source").symlink_to(source)
    dlaunch = Dlaunch(build)
    (pages / "reference" / "options.md").write_text(option_pages.page(dlaunch), encoding="utf-8")
    foreign_pages.write(pages / "migrate" / "tables", dlaunch, source)
    man_pages.write(pages / "reference", build, source)
    example_pages.write(pages / "tutorials", source)
    cpp_pages.run_doxygen(source, pages / "tools", out / "doxygen")
    cpp_pages.write(pages / "reference" / "api", source, out / "doxygen" / "xml")
    return pages


def main():
    source, build, out = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    pages = assemble(source, build, out)
    environment = dict(os.environ, SITE_SOURCE=str(source), SITE_XML=str(out / "doxygen" / "xml"))
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2", "-b", "html",
                           "-d", out / "cache", pages, out / "html"], env=environment)
    if done.returncode != 0:
        raise SystemExit("Sphinx ended with the warnings and errors above")
    return check_site.main(out / "html")


if __name__ == "__main__":
    sys.exit(main())

"""Makes Debian packages from this source, with dpkg-buildpackage. Debian's tools need the folder debian/ at the top. A
copy of the source gets this folder, with a changelog made from CHANGELOG.md.

usage: deb.py OUT       prints the names of the packages

DEBFULLNAME and DEBEMAIL name the maintainer, as for Debian's own tools.
"""

import email.utils
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MAINTAINER = "{} <{}>".format(os.environ.get("DEBFULLNAME", "maintainers of dlaunch"),
                              os.environ.get("DEBEMAIL", "maintainers@dlaunch.example"))


def output(*command):
    """The output of a command; an empty text if it fails or does not exist."""
    try:
        return subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def source_files():
    """The files of the source, without build results: those that git knows, or all files of an unpacked archive."""
    names = output("git", "ls-files", "-z").split("\0")[:-1]
    if names:
        return [name for name in names if (SOURCE / name).exists()]
    found = []
    for folder, folders, files in os.walk(SOURCE):
        folders[:] = [name for name in folders if not pathlib.Path(folder, name, "meson-private").exists()
                      and name not in ("__pycache__", "dist")]
        found += [os.path.relpath(os.path.join(folder, name), SOURCE) for name in files]
    return found


def entries(changes):
    """CHANGELOG.md as a list of (version, "unreleased" or a date, [change, …]), the newest first."""
    found = []
    for part in re.split(r"^## ", changes, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        version, when = re.fullmatch(r"(\S+) \((.*)\)", head.strip()).groups()
        items = re.split(r"^- ", body, flags=re.M)[1:]
        found.append((version, when, [" ".join(item.split()).replace("`", "") for item in items]))
    return found


def dated(when, now):
    """Seconds since 1970 for a date of CHANGELOG.md; now for unreleased changes."""
    return now if when == "unreleased" else int(time.mktime(time.strptime(when, "%Y-%m-%d")))


def debian_version(version, when, now):
    """A release must be newer than all earlier packages."""
    return version + (time.strftime("~%Y%m%d", time.gmtime(now)) if when == "unreleased" else "")


def changelog(found, now):
    text = ""
    for version, when, changes in found:
        text += f"dlaunch ({debian_version(version, when, now)}) unstable; urgency=medium\n\n"
        for change in changes:
            text += textwrap.fill(change, 78, initial_indent="  * ", subsequent_indent="    ",
                                  break_long_words=False, break_on_hyphens=False) + "\n"
        text += f"\n -- {MAINTAINER}  {email.utils.formatdate(dated(when, now))}\n\n"
    return text


def unpack(folder, version):
    """A copy of the source in the form that Debian's tools need: with debian/."""
    tree = folder / f"dlaunch-{version}"
    for name in source_files():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(SOURCE / name, tree / name, follow_symlinks=False)
    shutil.copytree(SOURCE / "script" / "packaging" / "debian", tree / "debian")
    control = tree / "debian" / "control"
    control.write_text(control.read_text().replace("@MAINTAINER@", MAINTAINER))
    return tree


def main():
    out = pathlib.Path(sys.argv[1])
    now = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct") or time.time())
    found = entries((SOURCE / "CHANGELOG.md").read_text())
    version = debian_version(*found[0][:2], now)
    profiles = [] if output("dpkg-query", "-W", "libtorch-dev", "python3-torch", "pybind11-dev") else [
        "--build-profiles=pkg.dlaunch.notorch"]
    with tempfile.TemporaryDirectory(prefix="dlaunch-deb-") as name:
        tree = unpack(pathlib.Path(name), version)
        (tree / "debian" / "changelog").write_text(changelog(found, now))
        ended = subprocess.run(["dpkg-buildpackage", "-us", "-uc", "--build=full", *profiles], cwd=tree,
                               stdout=sys.stderr, check=False)
        if ended.returncode != 0:
            raise SystemExit(f"dpkg-buildpackage failed ({ended.returncode}): see what it printed above")
        made = [file for file in sorted(tree.parent.iterdir()) if file.is_file()]
        for file in made:
            shutil.copy2(file, out)
    print(*(out / file.name for file in made), sep="\n")


if __name__ == "__main__":
    main()

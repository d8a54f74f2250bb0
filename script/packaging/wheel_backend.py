"""Makes wheels and sdists of dlaunch for pip and build, with meson-python. Its own wheels have no place for man pages,
completions and libraries that C programs link, so wheel.py makes the wheel.

Settings: builddir=FOLDER uses an existing build instead of a new one. setup-args=WORD is a further option for `meson
setup`. torch=FOLDER is a PyTorch for which the wheel gets a library (torch=pypi: the newest releases there). The last
two may be given several times.
"""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

import mesonpy
import torch_libraries
import wheel

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# The options of a wheel's build. PyTorch's back end would be for one PyTorch of one Python: see torch_libraries.py.
OPTIONS = ["--prefix=/usr", "-Dlibdir=lib", "-Dpackaged=true", "-Dtests=disabled", "-Dexamples=disabled",
           "-Dtorch=disabled", "-Ddebug_files=false", "-Dpython=enabled", "--unity=on", "-Dunity_size=24"]

get_requires_for_build_sdist = mesonpy.get_requires_for_build_sdist
get_requires_for_build_wheel = mesonpy.get_requires_for_build_wheel
build_sdist = mesonpy.build_sdist


def version():
    return re.search(r"version: '([^']+)'", (SOURCE / "meson.build").read_text())[1]


def metadata():
    project = mesonpy.pyproject_metadata.StandardMetadata.from_pyproject(
        mesonpy.tomllib.loads((SOURCE / "pyproject.toml").read_text()), SOURCE)
    project.version = mesonpy.packaging.version.Version(version())
    if "version" in project.dynamic:
        project.dynamic.remove("version")
    head, empty, description = str(project.as_rfc822()).partition("\n\n")
    # The names of license files from version 2.4 on, which not every meson-python writes.
    head = re.sub(r"^(Metadata-Version|License|License-Expression|License-File):.*\n?", "", head, flags=re.M).rstrip("\n")
    return (f"Metadata-Version: 2.4\n{head}\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE"
            f"{empty}{description}")


def option(built, name):
    options = json.loads((built / "meson-info" / "intro-buildoptions.json").read_text())
    return next(option["value"] for option in options if option["name"] == name)


def words(settings, key):
    given = (settings or {}).get(key, [])
    return [given] if isinstance(given, str) else list(given)


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)


def tell_left_out(built):
    """Names the parts that the wheel lacks because this machine lacks a package."""
    left_out = (built / "script" / "packaging" / "left-out").read_text().strip()
    if left_out:
        print(f"This wheel leaves out:\n{left_out}", file=sys.stderr)


def add_torch(prefix, given, folder):
    """The libraries of dlaunch.torch, instead of the build's own for one PyTorch of one Python."""
    modules = wheel.package_in(prefix) / "torch"
    for library in modules.glob("*.so"):
        library.unlink()
    if given:
        torch_libraries.add(given, next(prefix.glob("lib*/libdlring.so")).parent, modules, folder)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory(prefix="dlaunch-wheel-") as folder:
        given = words(config_settings, "builddir")
        built = pathlib.Path(given[0]) if given else pathlib.Path(folder, "build")
        if not given:
            run("meson", "setup", built, SOURCE, *OPTIONS, f"-Dtorch_python={sys.executable}",
                *words(config_settings, "setup-args"))
            run("meson", "compile", "-C", built)
        tell_left_out(built)
        tree = pathlib.Path(folder, "tree")
        run("meson", "install", "-C", built, "--no-rebuild", "--quiet", "--destdir", tree)
        prefix = next(pathlib.Path(root) for root, folders, _ in os.walk(tree) if "bin" in folders)
        add_torch(prefix, words(config_settings, "torch"), folder)
        made = wheel.Wheel(version(), metadata(), SOURCE / "LICENSE", platform.machine(), option(built, "packaged"))
        return made.write(prefix, wheel_directory)

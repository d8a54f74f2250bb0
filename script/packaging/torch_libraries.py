"""Makes the libraries of dlaunch.torch in a wheel: one for each minor release of PyTorch.

It needs only the headers and libraries of a PyTorch, for any Python, and runs no code of that PyTorch. It takes them
from given folders, or from PyPI's wheels.
"""

import pathlib
import re
import subprocess
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "ring" / "torch"))
import build_release  # noqa: E402

NEWEST = 4
# The files that build_release.py needs from a wheel.
NEEDED = re.compile(r"torch/(version\.py|include/.*|share/cmake/Torch/.*|lib/lib(c10|torch_cpu)\.so)")
# The path of libdlring.so.0 from dlaunch/torch in a Python's own folder: PREFIX/lib/python3.11/site-packages, or
# PREFIX/lib64/….
RPATH = "$ORIGIN/../../../..:$ORIGIN/../../../../../lib"


def pip(*words):
    said = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], capture_output=True, text=True)
    if said.returncode != 0:
        raise OSError(said.stderr.strip().splitlines()[-1] if said.stderr.strip() else f"pip {words[0]} failed")
    return said.stdout


def newest_releases():
    """The newest version of each of PyPI's newest minor releases."""
    found = re.search(r"Available versions: (.*)", pip("index", "versions", "torch"))
    newest = {}
    for version in (found[1].split(", ") if found else []):  # the newest first
        newest.setdefault(".".join(version.split(".")[:2]), version)
    return list(newest.values())[:NEWEST]


def fetched(version, folder):
    """The folder torch of PyPI's wheel of this version."""
    folder = pathlib.Path(folder, version)
    pip("download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, f"torch=={version}")
    archive = next(folder.glob("torch-*.whl"))
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder, [name for name in opened.namelist() if NEEDED.fullmatch(name)])
    archive.unlink()
    return folder / "torch"


def folder_of(given):
    """The given folder torch, or the one in the given environment or folder."""
    given = pathlib.Path(given)
    for pattern in "version.py", "torch/version.py", "lib/python3*/site-packages/torch/version.py":
        for file in given.glob(pattern):
            return file.parent
    raise SystemExit(f"{given} has no PyTorch")


def add(given, ring, out, folder):
    """Puts libraries into `out`. Prints one line with their releases, and with the releases that are not available.
    given: folders, and "pypi" for the newest releases there. ring: the folder of libdlring.so. folder: for
    downloads."""
    made, lacking = [], []

    def put(name, find):
        try:
            build_release.build(find(), out, str(ring), RPATH)
            made.append(name)
        except OSError as error:
            lacking.append(f"{name} ({error})")

    for word in given:
        if word != "pypi":
            torch = folder_of(word)
            put(build_release.release_of(torch), lambda torch=torch: torch)
            continue
        try:
            versions = newest_releases()
        except OSError as error:
            versions = []
            lacking.append(f"PyPI's ({error})")
        for version in versions:
            put(version, lambda version=version: fetched(version, folder))
    without = f"; not to be had: {', '.join(lacking)}" if lacking else ""
    print(f"libraries for PyTorch: {', '.join(made) or 'none'}{without}", file=sys.stderr)

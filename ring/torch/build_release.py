"""Makes the library of dlring_torch for one minor release of PyTorch; it serves every Python.

usage: build_release.py TORCH OUT [--ring FOLDER] [--rpath FOLDERS] [--debug]
       build_release.py --copy-source FOLDER

TORCH: the folder "torch" of that release, as its wheel has it (nothing of it is run, so that a CUDA
build needs no CUDA here). OUT: a folder, which gets libdlring_torch-X.Y.so; its name is printed.
--ring: where libdlring.so is, to link with (the loader's own folders); --rpath: where the library
looks for it, separated by ":" ($ORIGIN). CXX or c++ compiles, with CXXFLAGS at the end.

--copy-source puts what is needed for this into a folder: as dlring_torch_source beside dlring_torch.py, which
then makes a library for a release that it lacks by cached(). libdlring.so.0 is looked for beside that
folder, in lib there, and where the words of the folder's file ring_folders say (ways from the folder).
"""

import argparse
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "torch_library.cc"
# In dlaunch's source this file is in ring/torch; a copy of it lies above ring and include.
ROOT = HERE.parent.parent if (HERE / "meson.build").exists() else HERE
if ROOT == HERE:
    SOURCE = HERE / "ring" / "torch" / "torch_library.cc"
INCLUDES = [ROOT, ROOT / "ring" / "include", ROOT / "include"]


def release_of(torch):
    version = (pathlib.Path(torch) / "version.py").read_text()
    return re.search(r"^__version__ = '(\d+\.\d+)", version, re.M)[1]


def command(torch, out, ring, rpath, debug=False):
    headers = pathlib.Path(torch) / "include"
    words = shlex.split(os.environ.get("CXX", "c++"))
    words += ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", *(["-g1"] if debug else ["-s"])]
    words += [f"-I{folder}" for folder in INCLUDES if folder.is_dir()]
    for folder in headers, headers / "torch" / "csrc" / "api" / "include":
        words += ["-isystem", str(folder)]
    words += [str(SOURCE), "-o", str(out), f"-L{pathlib.Path(torch) / 'lib'}", "-lc10", "-ltorch_cpu"]
    words += [f"-L{ring}"] if ring else []
    words += ["-ldlring", "-pthread", "-Wl,-z,defs,-z,relro,-z,now", *(f"-Wl,-rpath,{way}" for way in rpath.split(":"))]
    return words + shlex.split(os.environ.get("CXXFLAGS", ""))


def build(torch, out, ring="", rpath="$ORIGIN", debug=False):
    """The library's path. OSError says what went wrong."""
    path = pathlib.Path(out) / f"libdlring_torch-{release_of(torch)}.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = pathlib.Path(folder) / path.name
        ended = subprocess.run(command(torch, made, ring, rpath, debug), capture_output=True, text=True)
        if ended.returncode != 0:
            raise OSError(f"the compiler failed:\n{ended.stderr[-2000:]}")
        made.rename(path)  # processes that do the same at the same time each put a whole one there
    return str(path)


def ring_folder():
    """Of the libdlring.so that a copy of the source was installed with."""
    for folder in HERE.parent, HERE.parent / "lib", *(HERE / line for line in ways()):
        if (folder / "libdlring.so.0").exists() or (folder / "libdlring.so").exists():
            return str(folder.resolve())
    return ""


def ways():
    file = HERE / "ring_folders"
    return file.read_text().split() if file.exists() else []


def sources():
    """What a copy is made of: where it is here, by where it is there."""
    here = {"build_release.py": pathlib.Path(__file__), "ring/torch/torch_library.cc": SOURCE}
    here.update({f"ring/torch/{header.name}": header for header in SOURCE.parent.glob("*.h")})
    here["include/dlaunch/ring.h"] = next(f / "dlaunch" / "ring.h" for f in INCLUDES if (f / "dlaunch" / "ring.h").exists())
    return here


def copy_source(folder):
    for there, here in sources().items():
        to = pathlib.Path(folder) / there
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here, to)


def stamp():
    """Another one after any change of the source."""
    text = hashlib.sha256()
    for _, here in sorted(sources().items()):
        text.update(here.read_bytes())
    return text.hexdigest()[:16]


def cached(folder):
    """The path of a library for the PyTorch of this process, made in `folder` if it is not there."""
    import torch
    torch_folder, ring = os.path.dirname(torch.__file__), ring_folder()
    out = pathlib.Path(folder) / f"{torch.__version__}-{stamp()}"
    path = out / f"libdlring_torch-{release_of(torch_folder)}.so"
    if path.exists():
        return str(path)
    print(f"dlring_torch compiles its library for PyTorch {torch.__version__}, once, into {out}", file=sys.stderr, flush=True)
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        os.environ["CXXFLAGS"] = os.environ.get("CXXFLAGS", "") + " -D_GLIBCXX_USE_CXX11_ABI=0"
    return build(torch_folder, out, ring, ring or "$ORIGIN")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", nargs="?")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--copy-source")
    parser.add_argument("--ring", default="")
    parser.add_argument("--rpath", default="$ORIGIN")
    parser.add_argument("--debug", action="store_true")
    given = parser.parse_args()
    if given.copy_source:
        return copy_source(given.copy_source)
    if not given.out:
        parser.error("TORCH and OUT are wanted, or --copy-source")
    try:
        print(build(given.torch, given.out, given.ring, given.rpath, given.debug))
    except OSError as e:
        sys.exit(f"build_release: {e}")


if __name__ == "__main__":
    main()

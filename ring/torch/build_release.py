"""Makes the library of dlaunch.torch for one minor release of PyTorch; it serves every Python.

usage: build_release.py TORCH OUT [--ring FOLDER] [--rpath FOLDERS] [--debug]
       build_release.py --copy-source FOLDER

TORCH: the folder "torch" of that release, as its wheel has it (nothing of it is run, so that a CUDA
build needs no CUDA here). OUT: a folder, which gets libdlring_torch-X.Y.so, or libdlring_torch-X.Y-oldabi.so for
a PyTorch with the old ABI of C++ (_GLIBCXX_USE_CXX11_ABI=0); its name is printed.
--ring: where libdlring.so is, to link with (the loader's own folders); --rpath: where the library
looks for it, separated by ":" ($ORIGIN). CXX or c++ compiles, with CXXFLAGS at the end.

--copy-source puts what is needed for this into a folder: as dlring_torch_source in dlaunch/torch, which
then makes a library for a release that it lacks by cached(). libdlring.so.0 is looked for beside that
folder, in lib there, and where the words of the folder's file ring_folders say (ways from the folder).
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "torch_library.cc"
# In dlaunch's source this file is in ring/torch; a copy of it lies above base, ring and include.
ROOT = HERE.parent.parent if (HERE / "meson.build").exists() else HERE
if ROOT == HERE:
    SOURCE = HERE / "ring" / "torch" / "torch_library.cc"
INCLUDES = [ROOT, ROOT / "ring" / "include", ROOT / "include"]


def release_of(torch):
    file = pathlib.Path(torch) / "version.py"
    found = re.search(r"^__version__ = ['\"](\d+\.\d+)", file.read_text(errors="replace"), re.M)
    if not found:
        raise OSError(f"{file} does not say which release of PyTorch this is")
    return found[1]


def has_old_abi(torch):
    """Whether its own CMake file names the old ABI."""
    file = pathlib.Path(torch) / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    return file.exists() and "_GLIBCXX_USE_CXX11_ABI=0" in file.read_text(errors="replace")


def name_of(release, old_abi):
    return f"libdlring_torch-{release}{'-oldabi' if old_abi else ''}.so"


def hardening():
    """The hardening options of a packaged build of dlaunch."""
    words = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fstack-clash-protection"]
    return words + (["-fcf-protection=full"] if platform.machine() == "x86_64" else [])


def shadow_stack():
    """The linker does not mark a suitable file by itself if the system's start files are not marked."""
    return ["-Wl,-z,shstk"] if platform.machine() == "x86_64" else []


def command(torch, out, ring, rpath, old_abi, debug=False):
    headers = pathlib.Path(torch) / "include"
    words = shlex.split(os.environ.get("CXX", "c++"))
    words += ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", *hardening()]
    words += [f"-D_GLIBCXX_USE_CXX11_ABI={0 if old_abi else 1}", *(["-g1"] if debug else ["-s"])]
    words += [f"-I{folder}" for folder in INCLUDES if folder.is_dir()]
    for folder in headers, headers / "torch" / "csrc" / "api" / "include":
        words += ["-isystem", str(folder)]
    words += [str(SOURCE), "-o", str(out), f"-L{pathlib.Path(torch) / 'lib'}", "-lc10", "-ltorch_cpu"]
    words += [f"-L{ring}"] if ring else []
    words += ["-ldlring", "-pthread", "-Wl,-z,defs,-z,relro,-z,now", *shadow_stack(), *(f"-Wl,-rpath,{way}" for way in rpath.split(":"))]
    return words + shlex.split(os.environ.get("CXXFLAGS", ""))


def compile_library(torch, out, *given, **more):
    """Raises OSError with the reason."""
    ended = subprocess.run(command(torch, out, *given, **more), capture_output=True, text=True)
    if ended.returncode != 0:
        raise OSError(f"the compiler failed:\n{ended.stderr[-2000:]}")


def build(torch, out, ring="", rpath="$ORIGIN", debug=False):
    """Builds the library and returns its path; replaces an earlier one."""
    old_abi = has_old_abi(torch)
    path = pathlib.Path(out) / name_of(release_of(torch), old_abi)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = pathlib.Path(folder) / path.name
        compile_library(torch, made, ring, rpath, old_abi, debug=debug)
        made.rename(path)
    return str(path)


def ring_folder():
    """The folder of the libdlring.so that was installed with a copy of the source."""
    for folder in HERE.parent, HERE.parent / "lib", *(HERE / line for line in ways()):
        if (folder / "libdlring.so.0").exists() or (folder / "libdlring.so").exists():
            return str(folder.resolve())
    return ""


def ways():
    file = HERE / "ring_folders"
    return file.read_text().split() if file.exists() else []


def sources():
    """The files of a copy: their places here, by their places there."""
    here = {"build_release.py": pathlib.Path(__file__), "ring/torch/torch_library.cc": SOURCE}
    here.update({f"ring/torch/{header.name}": header for header in SOURCE.parent.glob("*.h")})
    here.update({f"base/{name}": ROOT / "base" / name for name in ("contract.h", "fnv1a.h", "words.h")})
    public = next(folder / "dlaunch" for folder in INCLUDES if (folder / "dlaunch" / "ring.h").exists())
    here.update({f"include/dlaunch/{name}": public / name for name in ("reductions.h", "ring.h")})
    return here


def copy_source(folder):
    for there, here in sources().items():
        to = pathlib.Path(folder) / there
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here, to)


def stamp(torch, ring, old_abi):
    """Changes with every input of a library."""
    whole = hashlib.sha256(f"{old_abi} {platform.machine()} {ring}\n".encode())
    whole.update((pathlib.Path(torch) / "version.py").read_bytes())
    for _, here in sorted(sources().items()):
        whole.update(here.read_bytes())
    return whole.hexdigest()[:16]


def refuse_strangers(path):
    """Raises OSError if another user may have written there."""
    facts = os.lstat(path)
    wrong = ("it is a link" if stat.S_ISLNK(facts.st_mode) else
             f"it belongs to user {facts.st_uid}" if facts.st_uid != os.geteuid() else
             "other users can write to it" if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else "")
    if wrong:
        raise OSError(f"{path} is not safe to load from, for {wrong}: remove it, or set XDG_CACHE_HOME to a "
                      "folder of your own")


def own_folder(path):
    path.mkdir(mode=0o700, parents=False, exist_ok=True)
    refuse_strangers(path)


@contextlib.contextmanager
def alone(folder):
    """Lets one process of this host in at a time."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: each process compiles, and one file stays
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def identity(path):
    facts = os.lstat(path)
    return facts.st_ino, facts.st_mtime_ns


def put_new(made, path):
    """Never replaces a file that another process uses."""
    made.chmod(0o700)
    try:
        os.link(made, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        made.rename(path)


def cached(folder, broken=None):
    """The path of a library for the PyTorch of this process, made below `folder` if it is missing. broken: the
    identity() of a file there that cannot be loaded; it is replaced."""
    import torch
    folder = pathlib.Path(folder)
    if not folder.is_absolute():
        raise OSError(f"the folder of compiled libraries is {folder}, which is not absolute: set XDG_CACHE_HOME")
    torch_folder, ring = os.path.dirname(torch.__file__), ring_folder()
    old_abi = not torch._C._GLIBCXX_USE_CXX11_ABI
    out = folder / f"{torch.__version__}-{stamp(torch_folder, ring, old_abi)}"
    path = out / name_of(release_of(torch_folder), old_abi)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for own in folder, out:
        own_folder(own)
    if not broken and os.path.lexists(path):
        refuse_strangers(path)
        return str(path)
    with alone(out):
        if path.exists() and identity(path) == broken:
            path.unlink()
        if not os.path.lexists(path):
            print(f"dlaunch.torch compiles its library for PyTorch {torch.__version__}, once, into {out}",
                  file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(dir=out) as fresh:
                made = pathlib.Path(fresh) / path.name
                compile_library(torch_folder, made, ring, ring or "$ORIGIN", old_abi)
                put_new(made, path)
        refuse_strangers(path)
    return str(path)


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

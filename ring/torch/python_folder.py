"""Where modules for this Python belong if they are installed under a prefix, for Meson.

usage: PYTHON python_folder.py PREFIX LIBDIR TORCH_LIBRARIES GIVEN [BELOW]
TORCH_LIBRARIES: folders of PyTorch's own libraries, separated by ";". GIVEN: the folder if the user
chose one, or an empty word. BELOW: the modules' folder within that one.
Prints three lines: the folder; "yes" if this Python looks there by itself; the modules' RUNPATH, by
which they find the libraries in LIBDIR and those of PyTorch.
"""

import os
import re
import site
import sys
import sysconfig


def searched():
    """This Python's folders for modules, the best one first."""
    folders = [sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return [os.path.realpath(folder) for folder in folders]


def below(prefix, folder):
    """The way from prefix to folder, or None if folder belongs to another prefix.

    /usr/local/lib/… lies below /usr, but /usr has its modules in /usr/lib.
    """
    way = os.path.relpath(folder, os.path.realpath(prefix))
    return way if way.startswith("lib") else None


def choose(prefix):
    for folder in searched():
        if way := below(prefix, folder):
            return os.path.join(prefix, way)
    return sysconfig.get_path("platlib", "posix_prefix", vars={"base": prefix, "platbase": prefix})


def is_the_loaders(folder):
    """Whether the loader looks there by itself."""
    return re.fullmatch(r"(/usr)?/lib(32|64)?(/[^/]*-linux-[^/]*)?", folder)


def runpath(folder, below, libdir, torch_folders):
    modules = os.path.join(folder, below)
    words = [] if is_the_loaders(libdir) else ["$ORIGIN/" + os.path.relpath(libdir, modules)]
    for torch in filter(os.path.isdir, torch_folders):
        if torch.startswith(folder + "/"):
            words.append("$ORIGIN/" + os.path.relpath(torch, modules))
        elif not is_the_loaders(torch):
            words.append(torch)
    return ":".join(words)


def main():
    prefix, libdir, torch_folders, given, *below = sys.argv[1:]
    folder = os.path.join(prefix, given) if given else choose(prefix)
    print(folder)
    print("yes" if os.path.realpath(folder) in searched() else "no")
    print(runpath(folder, *below or [""], os.path.join(prefix, libdir), torch_folders.split(";")))


if __name__ == "__main__":
    main()

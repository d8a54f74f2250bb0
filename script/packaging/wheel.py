"""Makes a wheel from the files that `meson install` has put into a folder.

Programs go where pip puts scripts, the package beside other packages, and all else (libraries, headers, man pages,
completions) below the prefix of pip's Python, as in an ordinary installation. So programs and modules find the
libraries by the same relative paths.
"""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import zipfile

# The file that a linker uses as libNAME.so: a wheel has no symbolic links.
LINKER_SCRIPT = "/* GNU ld script */\nINPUT({})\n"
# Left out: modulefiles name the folder of one Python.
NOT_PACKED = re.compile(r"(^|/)__pycache__/|\.pyc$|^lib/debug/|^share/modulefiles/")


def glibc_of(files):
    """The newest version of glibc that these programs and libraries need, as (2, 34)."""
    newest = (2, 17)
    for file in files:
        said = subprocess.run(["readelf", "--version-info", "--wide", file], check=True, capture_output=True, text=True)
        for found in re.finditer(r"\bGLIBC_2\.(\d+)", said.stdout):
            newest = max(newest, (2, int(found[1])))
    return newest


def is_elf(file):
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def package_in(tree):
    """The folder of the package dlaunch below a prefix."""
    package = next(pathlib.Path(tree).glob("lib*/python3*/*-packages/dlaunch"), None)
    if package is None:
        raise SystemExit(f"{tree} has no package for Python: see 'Left out' at the end of meson setup")
    return package


class Wheel:
    """usage: Wheel(version, metadata, license, machine, packaged).write(tree, folder)

    license: the file. packaged: whether the build needs only glibc of its system."""

    def __init__(self, version, metadata, license, machine, packaged):
        self.stem = f"dlaunch-{version}"
        self.metadata, self.license, self.machine, self.packaged = metadata, license, machine, packaged

    def platform(self, files):
        if not self.packaged:
            return f"linux_{self.machine}"
        elf = [source for source in files.values() if isinstance(source, pathlib.Path) and is_elf(source)]
        major, minor = glibc_of(elf)
        return f"manylinux_{major}_{minor}_{self.machine}"

    def write(self, tree, folder):
        """tree: the prefix, with the files below it. Returns the name of the wheel."""
        files = self.placed(pathlib.Path(tree))
        tag = f"cp39-abi3-{self.platform(files)}"
        files[f"{self.stem}.dist-info/METADATA"] = self.metadata
        files[f"{self.stem}.dist-info/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: dlaunch\nRoot-Is-Purelib: false\nTag: {tag}\n")
        files[f"{self.stem}.dist-info/licenses/LICENSE"] = pathlib.Path(self.license)
        files[f"{self.stem}.dist-info/sboms/dlaunch.cdx.json"] = pathlib.Path(tree, "share/dlaunch/sbom.cdx.json")
        name = f"{self.stem}-{tag}.whl"
        self.zip(files, pathlib.Path(folder, name))
        return name

    def placed(self, tree):
        """The contents of the wheel: name -> file, or text."""
        files = {}
        package = package_in(tree)
        for file in sorted(tree.rglob("*")):
            name = str(file.relative_to(tree))
            if file.is_dir() or NOT_PACKED.search(name):
                continue
            if package in file.parents:
                files["dlaunch/" + str(file.relative_to(package))] = file
            elif file.parent == tree / "bin":
                files[f"{self.stem}.data/scripts/{file.name}"] = file
            elif package.parent in file.parents:
                files[str(file.relative_to(package.parent))] = file
            else:
                files.update(self.beside(name, file))
        return files

    def beside(self, name, file):
        at = f"{self.stem}.data/data/"
        shared = re.fullmatch(r"(.*/)?(lib\w+)\.so(\.\d+)?(\..*)?", name)
        if not shared:
            return {at + name: file}
        if not file.is_symlink():
            return {}
        if shared[3]:  # its name at run time
            return {at + name: file.resolve()}
        return {at + name: LINKER_SCRIPT.format(os.path.basename(os.readlink(file)))}

    def zip(self, files, target):
        record = f"{self.stem}.dist-info/RECORD"
        lines = []
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, source in files.items():
                content = source.encode() if isinstance(source, str) else source.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                lines.append(f"{name},sha256={digest},{len(content)}\n")
                mode = 0o755 if not isinstance(source, str) and os.access(source, os.X_OK) else 0o644
                archive.writestr(self.entry(name, mode), content)
            archive.writestr(self.entry(record, 0o644), "".join(lines) + f"{record},,\n")

    @staticmethod
    def entry(name, mode):
        """Gives the same bytes in each build."""
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        return info

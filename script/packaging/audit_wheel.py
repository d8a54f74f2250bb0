"""Asks auditwheel whether a wheel fulfils its name: it must run on every system with that glibc.

usage: PYTHON audit_wheel.py WHEEL      PYTHON has auditwheel; exit code 1: the wheel does not

auditwheel looks for libraries beside the package. Those in PREFIX/lib and those of PyTorch are not there yet, so it
reports them as foreign. It must report no others. It does not search this system, which may have another PyTorch.
"""

import json
import re
import subprocess
import sys

OWN = {"libdlring.so.0", "libdlelastic.so.0", "libc10.so", "libtorch_cpu.so"}


def glibc_of(tag):
    found = re.search(r"manylinux_2_(\d+)_", tag)
    return int(found[1]) if found else 0


def faults(shown):
    """The contradictions to the wheel's name in the output of `auditwheel show --json`."""
    promised, needed = glibc_of(shown["wheel"]), glibc_of(shown["sym_tag"])
    foreign = set(shown["external_libs"])
    for tag, upgrade in shown["policy_upgrades"].items():
        if glibc_of(tag) == promised:
            foreign.update(upgrade["libs_to_eliminate"])
    if not promised:
        yield "its name promises no glibc"
    if not 0 < needed <= promised:
        yield f"its symbols need {shown['sym_tag']}"
    if shown["unsupported_isa"]:
        yield "its code needs a newer processor than the name says"
    if foreign - OWN:
        yield f"a system may lack {', '.join(sorted(foreign - OWN))}"


def main():
    said = subprocess.run([sys.executable, "-m", "auditwheel", "show", "--json", "--ldpaths", "/nowhere", sys.argv[1]],
                          check=True, capture_output=True, text=True)
    shown = json.loads(said.stdout)
    found = list(faults(shown))
    for fault in found:
        print(f"{shown['wheel']}: {fault}", file=sys.stderr)
    if not found:
        print(f"auditwheel: the symbols need {shown['sym_tag']}, and nothing foreign is needed beside PyTorch's libraries")
    sys.exit(bool(found))


main()

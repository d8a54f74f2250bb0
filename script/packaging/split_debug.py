#!/usr/bin/env python3
"""Copies the debug information of programs and libraries to OUT/.build-id, where debuggers look for it.

usage: split_debug.py OBJCOPY READELF OUT FILE…
"""

import pathlib
import re
import shutil
import subprocess
import sys

objcopy, readelf, out, *files = sys.argv[1:]
shutil.rmtree(out, ignore_errors=True)
for file in files:
    notes = subprocess.run([readelf, "-n", file], check=True, capture_output=True, text=True).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]{8,})", notes)
    if not build_id:
        sys.exit(f"{file} has no build ID: link it with -Wl,--build-id")
    place = pathlib.Path(out, ".build-id", build_id[1][:2], build_id[1][2:] + ".debug")
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([objcopy, "--only-keep-debug", "--compress-debug-sections", file, place], check=True)
    place.chmod(0o644)

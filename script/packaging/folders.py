#!/usr/bin/env python3
"""Relative paths from one installed folder to another, for Meson: one line for each pair FROM:TO.

usage: folders.py PREFIX FROM:TO…     folders are absolute, or below PREFIX as Meson's options name them
"""

import os
import sys

prefix = sys.argv[1]
for pair in sys.argv[2:]:
    start, end = (os.path.join(prefix, folder) for folder in pair.split(":"))
    print(os.path.relpath(end, start))

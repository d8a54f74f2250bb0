"""Compiles a module as this Python's import system would, for Meson.

usage: PYTHON compile_module.py SOURCE COMPILED     or --tag: prints the tag in the names of such files
Python need not write the file when it imports the module, so uninstalling leaves nothing behind. The file identifies
its source by a hash, because an installed source has another time.
"""

import os
import py_compile
import sys

if sys.argv[1] == "--tag":
    print(sys.implementation.cache_tag)
else:
    py_compile.compile(sys.argv[1], sys.argv[2], os.path.basename(sys.argv[1]), doraise=True,
                       invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)

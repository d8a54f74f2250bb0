#!/bin/sh
# `meson install` runs this script, except with DESTDIR.
# usage: after_install.sh BINDIR LIBDIR MODULES PYTHON
# PYTHON is empty if Python searches the folder MODULES by default.
bindir=$1 libdir=$2 modules=$3 python=$4
# Meson captures the output of its scripts, so this one writes to Meson's own output. If that is a file, both would
# overwrite each other, and the summary of `meson setup` must be enough.
shown=/proc/$PPID/fd/1
{ [ -z "${MESON_INSTALL_QUIET:-}" ] && { [ -c $shown ] || [ -p $shown ]; }; } || shown=/dev/null
say() { echo "$*" >>$shown; }

# Programs linked without pkg-config's flags need this. It works only if the loader's cache has the folder.
if [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null && ldconfig -v -N -X 2>/dev/null | grep -q "^$libdir:"; then
  ldconfig || say "ldconfig failed: only programs that are built with pkg-config's flags find libdlring"
fi
case :$PATH: in
  *:"$bindir":*) ;;
  *) say "dlaunch is in $bindir, which is not in PATH." ;;
esac
if [ -n "$python" ]; then
  say "The modules for Python are in $modules, where $python does not look by itself:"
  say "  export PYTHONPATH=$modules"
fi
exit 0

#!/bin/sh
# `meson install` runs it, except with DESTDIR.
# usage: after_install.sh BINDIR LIBDIR MODULES PYTHON
# PYTHON is empty if it looks into the folder MODULES by itself.
bindir=$1 libdir=$2 modules=$3 python=$4
# Meson captures the output of its scripts, so write to Meson's own output. If that is a file both would overwrite each
# other; then the summary of `meson setup` is enough.
shown=/proc/$PPID/fd/1
{ [ -z "${MESON_INSTALL_QUIET:-}" ] && { [ -c $shown ] || [ -p $shown ]; }; } || shown=/dev/null
say() { echo "$*" >>$shown; }

# For programs linked without pkg-config's flags. Only if the loader's cache has this folder.
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

#!/bin/sh
# Run by `meson install`, but not where DESTDIR is set.
# usage: after_install.sh BINDIR LIBDIR MODULES PYTHON
# PYTHON is empty where it looks into the folder MODULES by itself.
bindir=$1 libdir=$2 modules=$3 python=$4
# Meson keeps what its scripts print, so this is said where Meson itself prints. Not into a file, where both
# would write over each other; the summary of `meson setup` says it, too.
shown=/proc/$PPID/fd/1
{ [ -z "${MESON_INSTALL_QUIET:-}" ] && { [ -c $shown ] || [ -p $shown ]; }; } || shown=/dev/null
say() { echo "$*" >>$shown; }

# For programs that are linked without what pkg-config says. Only where the loader's cache has this folder.
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

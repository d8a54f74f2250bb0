# Every scenario sources this file. Scenarios run real binaries in real processes. A scenario has a
# fresh temporary folder, waits for conditions and does not sleep and hope, ends only the processes
# that it started, and leaves nothing behind. Meson passes the build folder in $BUILD and the source
# folder in $SOURCE.
set -u
export PATH="$BUILD/cli:$BUILD/cli/bench:$BUILD/examples:$PATH"
export LD_LIBRARY_PATH="$BUILD/ring${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/dl-scenario-XXXXXX")
started=()
# Prints where the scenario stands if it still runs after $TELL_OF_HANG seconds, before Meson ends it.
# Meson sets this variable. A scenario that is started by hand has no limit.
tell_of_hang() {
  read -rt "$TELL_OF_HANG" <> <(:)
  echo "STILL RUNNING: line ${BASH_LINENO[0]}, and these processes:"
  ps -eo pid,ppid,etimes,stat,wchan:20,args | awk -v root=$$ '
    NR == 1 { print; next }
    { parent[$1] = $2; line[$1] = $0; order[++n] = $1 }
    END { for (i = 1; i <= n; ++i) { p = order[i]; while (p > 1 && p != root) p = parent[p]; if (p == root) print line[order[i]] } }'
  cd "$tmp" && for f in out err; do [ -f $f ] && { echo "--- $f"; tail -n 40 $f; }; done
  for folder in "${TMPDIR:-/tmp}" "$tmp"; do TMPDIR=$folder "$BUILD/cli/ctl/dlaunchctl" stacks 2>&1 | tail -n 200; done
} >&2
watchdog=
[ -z "${TELL_OF_HANG:-}" ] || { tell_of_hang & watchdog=$!; }
cleanup() {
  [ -z "$watchdog" ] || kill "$watchdog" 2>/dev/null
  for pid in ${started[@]+"${started[@]}"}; do kill -9 "$pid" 2>/dev/null; done
  cd / && rm -rf "$tmp"
}
trap cleanup EXIT
cd "$tmp" || exit 1

fail() { echo "FAIL: $*" >&2; for f in out err; do [ -f $f ] && { echo "--- $f"; tail -n 40 $f; } >&2; done; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }
need_package() { compgen -G "$BUILD/python/dlaunch/_core*.so" >/dev/null || skip "the package was not built: it needs python3-dev"; }
# need_numpy: the package, and NumPy in $python, for which the package was built. Sets the environment of both.
need_numpy() {
  need_package
  python=${PACKAGE_PYTHON:-/usr/bin/python3}
  "$python" -c 'import numpy' 2>/dev/null || skip "NumPy is not installed"
  export PYTHONPATH="$BUILD/python${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
}
# has_torch PYTHON: whether this Python has PyTorch with torch.distributed. It does not import PyTorch, which takes a second.
has_torch() {
  "$1" -c 'import importlib.util, os, sys
found = importlib.util.find_spec("torch")
sys.exit(not found or not os.path.exists(os.path.dirname(found.origin) + "/distributed/run.py"))' 2>/dev/null
}
# need_torch: PyTorch in $python. Meson has malloc fill memory with a pattern, which takes a tenth of PyTorch's time.
need_torch() {
  python=${TORCH_PYTHON:-/usr/bin/python3}
  has_torch "$python" || skip "PyTorch is not installed"
  unset MALLOC_PERTURB_
}
# torch_built: whether this build has dlaunch.torch.
torch_built() { compgen -G "$BUILD/python/dlaunch/torch/*dlring_torch*.so" >/dev/null; }
need_torch_built() { torch_built || skip "dlaunch.torch was not built: it needs libtorch-dev and pybind11-dev"; }
# need_torch_back_end: PyTorch in $python, and dlaunch.torch.
need_torch_back_end() { need_torch; need_torch_built; }
# without_numpy COMMAND…: runs the command so that its Pythons have no NumPy.
without_numpy() {
  mkdir -p no_numpy/numpy && echo 'raise ModuleNotFoundError("the test hides NumPy")' >no_numpy/numpy/__init__.py
  PYTHONPATH="$PWD/no_numpy${PYTHONPATH:+:$PYTHONPATH}" "$@"
}
# install_beside MODULE: makes an environment with the package, and with the folder in which $python has MODULE. $python
# becomes the Python of this environment.
install_beside() {
  "$python" -m venv --without-pip venv && local site; site=$(echo venv/lib/python*/site-packages)
  "$python" -c "import os, $1; print(os.path.dirname(os.path.dirname($1.__file__)))" 2>/dev/null >"$site/$1.pth"
  echo "import site; site.addsitedir('$BUILD/python')" >"$site/package.pth"
  python=venv/bin/python
}
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# run ARGS…: runs to the end; leaves out, err, $code and $ms (wall milliseconds).
run() {
  local t0; t0=$(now_ms)
  "$@" >out 2>err </dev/null; code=$?
  ms=$(($(now_ms) - t0))
}
expect_code() { [ "$code" = "$1" ] || fail "exit code $code, expected $1"; }
expect_under() { [ "$ms" -le "$1" ] || fail "took $ms ms, allowed $1"; }
expect_err() { grep -qE -- "$1" err || fail "stderr lacks: $1"; }
expect_out() { grep -qE -- "$1" out || fail "stdout lacks: $1"; }
# wait_until [SECONDS] COMMAND…: polls until the command succeeds, for 60 s at most unless another limit is given.
wait_until() {
  local limit=60
  if [[ $1 =~ ^[0-9]+$ ]]; then limit=$1; shift; fi
  local end=$((${EPOCHREALTIME/./} + limit * 1000000)) polls=0 pause=0.01
  until "$@"; do
    [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
    [ $((++polls)) -lt 50 ] || pause=0.03  # each poll starts processes
    read -rt $pause <> <(:) || :
  done
}
# For shells with traps: `read -t` waits in vain on descriptor 9. If a signal comes while bash makes
# a <(…), bash may take the trap for unfinished and continue without it.
never='exec 9<> <(:); '
# connected PID: whether it sleeps, and has a socket: it waits for an answer.
connected() { grep -q '^State:.S' "/proc/$1/status" && ls -l "/proc/$1/fd" | grep -q socket; }
# alive PID: whether the process exists and is not a zombie.
alive() { [ -r "/proc/$1/stat" ] && [ "$(sed 's/.*) //' "/proc/$1/stat" | cut -c1)" != Z ]; }

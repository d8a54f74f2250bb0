# Scenarios that run the examples source this after common.sh.
# examples_up PYTHON: installs dlaunch below $tmp. The current folder becomes a copy of the installed examples, and
# python3 becomes that Python.
examples_up() {
  unset LD_LIBRARY_PATH
  export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
  meson install -C "$BUILD" --no-rebuild --destdir "$tmp/root" >install.log 2>&1 || fail "$(tail -n 5 install.log)"
  local bin package; bin=$(dirname "$(find "$tmp/root" -name dlaunch -path '*/bin/*')")
  package=$(find "$tmp/root" -type d -path '*-packages/dlaunch')
  mkdir bin && printf '#!/bin/sh\nexec %q "$@"\n' "$1" >bin/python3 && chmod +x bin/python3 || fail "no python3"
  export PATH="$tmp/bin:$bin:$PATH" PYTHONPATH="${package%/dlaunch}"
  cp -r "$bin/../share/doc/dlaunch/examples" examples && cd examples || fail "no examples are installed"
}
# run_examples FILE…: each must print the output that its header shows.
run_examples() {
  [ $# -gt 0 ] || fail "there are no examples"
  run python3 "$SOURCE/tests/scenario/examples.py" --jobs "${EXAMPLES_JOBS:-2}" "$@"
  cat out
  expect_code 0
}

# The documentation site builds without a warning, all its links have a target, and its pages load nothing from other
# servers. SITE_PYTHON names a Python that has Sphinx and the packages that it needs.
source "$SOURCE/tests/scenario/common.sh"
python=${SITE_PYTHON:-/usr/bin/python3}
"$python" -c 'import sphinx, myst_parser, furo, breathe, autoapi' 2>/dev/null ||
  skip "this Python lacks Sphinx, MyST, Furo, Breathe or AutoAPI: SITE_PYTHON names one that has them"
for tool in doxygen mandoc; do command -v $tool >/dev/null || skip "$tool is not installed"; done

run env SITE_PYTHON="$python" PYTHONDONTWRITEBYTECODE=1 "$SOURCE/script/docs" --build "$BUILD" --out "$PWD/site"
cat out err
expect_code 0; expect_out ', 0 problems$'
[ ! -s err ] || fail "it warned"
for page in start tutorials/hello migrate/srun howto/failures reference/options reference/man/dlaunch.1 \
  reference/api/ring.hpp reference/python design/architecture; do
  [ -s "site/html/$page.html" ] || fail "there is no page $page"
done
# The generated parts are there: an option, a function of C, a member of C++, a function of Python, an option of srun.
found() { grep -qF -- "$2" "site/html/$1.html" || fail "$1 lacks $2"; }
found reference/options 'id="cmdoption-dlaunch-max-restarts"'
found reference/api/ring.h 'dl_all_reduce'
found reference/api/ring.hpp 'wait_any'
found reference/python 'id="dlaunch.Communicator.all_reduce"'
found migrate/srun '--kill-on-bad-exit'

# The checks find planted faults.
breaks() { # HTML REGEX
  cp -r site/html broken; echo "$1" >>broken/start.html
  run "$python" "$SOURCE/man/site/tools/check_site.py" broken
  expect_code 1; expect_out "$2"; rm -rf broken
}
breaks '<a href="no-such-page.html">x</a>' '^start.html: no-such-page.html leads to no file$'
breaks '<a href="index.html#no-such-anchor">x</a>' '^start.html: index.html#no-such-anchor leads to no anchor'
breaks '<script src="https://example.org/x.js"></script>' '^start.html: fetches https://example.org/x.js from'

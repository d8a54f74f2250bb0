# Runs every command of the documentation site, page by page, with dlaunch in the form of an installation.
source "$SOURCE/tests/scenario/common.sh"
need_package
torch_built || export SITE_WITHOUT=dlaunch.torch
# As in an installation, the programs find headers and libraries beside themselves.
mkdir -p prefix/bin prefix/include prefix/lib
cp "$BUILD/cli/dlaunch" "$BUILD/cli/ctl/dlaunchctl" "$BUILD/cli/bench/dlaunch-bench" prefix/bin/
ln -s "$SOURCE"/ring/include/dlaunch prefix/include/dlaunch
cp -P "$BUILD"/ring/libdlring.so{,.0,.0.?.?} prefix/lib/
python=${PACKAGE_PYTHON:-/usr/bin/python3}
# An environment with the package and with all packages of that Python.
"$python" -m venv --without-pip venv && site=$(echo venv/lib/python*/site-packages) || fail "no virtual environment"
"$python" -c 'import sys; print(*(path for path in sys.path if path.endswith("-packages")), sep="\n")' >"$site/others.pth"
echo "import site; site.addsitedir('$BUILD/python')" >"$site/package.pth"
python=$PWD/venv/bin/python
export PATH="$PWD/venv/bin:$PWD/prefix/bin:$PATH"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
mapfile -t pages < <(find "$SOURCE/man/site" "$SOURCE"/examples/*/ -name '*.md' | sort)
run "$python" "$SOURCE/tests/scenario/site_commands.py" "$SOURCE" "${pages[@]}"
cat out
expect_code 0; expect_out '^[0-9]+ pages: .*commands run(,|$)'

# The driver finds planted faults: a command that fails, output that differs, output that no page shows.
wrong() { # BLOCK REGEX
  printf '# Page\n\n```console\n%s\n```\n' "$1" >page.md
  run "$python" "$SOURCE/tests/scenario/site_commands.py" "$PWD" page.md
  expect_code 1; expect_out "$2"
}
printf '```python\nx = 1\n```\n' >page.md
run "$python" "$SOURCE/tests/scenario/site_commands.py" "$PWD" page.md
expect_code 1; expect_out 'neither a file \(:caption:\) nor marked as shown$'
wrong '$ echo a; false' '^page.md:4: ended with 1: echo a; false$'
wrong $'$ echo a\nb' 'did not print: b$'
wrong $'$ echo a; echo b\na' 'printed, which the page does not show: b$'

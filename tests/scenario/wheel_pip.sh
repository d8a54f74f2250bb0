# script/check-wheel runs this for WHEEL and the PyTorch of RELEASE, and describes the steps.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
has_torch=1 has_numpy=1
wheel_up
# show COMMAND: prints the command as the user types it, runs it, and prints its output.
show() { echo "\$ $1"; run as_pip_user sh -c "$1"; cat out err; expect_code 0; }

echo "== PyTorch $RELEASE"
as_pip_user sh -c 'command -v cc c++ gcc g++ clang' && fail "there is a compiler"
show "pip list"
show "pip install --quiet $wheel 'torch==$RELEASE.*' numpy"
show "pip list"
site=$(echo "$PWD"/venv/lib/python*/site-packages)
[ -e "$site/dlaunch/torch/libdlring_torch-$RELEASE.so" ] || fail "the wheel has no library for PyTorch $RELEASE"
for program in hello hello_torch; do
  command=$(grep "^dlaunch --nproc 4 $program\.py\$" commands) || fail "the README runs $program.py otherwise"
  show "$command"
  ranks_said
done
show "$(readme_lines '^dlaunch .* hello_elastic.py$')"
ranks_learned
[ ! -e .cache/dlaunch ] || fail "a library was compiled"

sed 's/,.*//' "$site"/dlaunch-*.dist-info/RECORD >../record
grep -qx 'dlaunch/__init__.py' ../record || fail "pip has no record of dlaunch"
show "pip uninstall --yes dlaunch"
while read -r file; do [ ! -e "$site/$file" ] || fail "left behind: $file"; done <../record
left=$(everything | grep -iE 'dlaunch|dlring|dlelastic'); [ -z "$left" ] || fail "left behind: $left"
echo "== PyTorch $RELEASE: nothing is left of dlaunch"

# An ordinary user installs into a virtual environment as the README says. The README's C, C++ and Python
# programs build and run with only the variables of its activation. After uninstall nothing is left.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
[ $has_torch = 1 ] || skip "this build has no back end for PyTorch"
install=$(readme_lines '--prefix \$VIRTUAL_ENV'; readme_lines '^meson install -C build$' | head -n 1)
[ "$(wc -l <<<"$install")" = 2 ] || fail "the README installs otherwise"
user_copy
as_user /usr/bin/python3 -m venv --system-site-packages --without-pip venv || skip "venv is not installed"
(cd venv && find . | sort) >../before

run as_user bash -euo pipefail -c "$meson_of_a_copy. venv/bin/activate; { $install
} | cat"; expect_code 0
grep -E 'PYTHONPATH|not in PATH' out && fail "the installation asks for a variable"
expect_installed_well venv
readme_programs
sed -i 's|pkg-config \(.*\) dlring|dlaunch \1|' commands
run as_user bash -euxc ". venv/bin/activate; $(cat commands)"; programs_said
run as_user venv/bin/python -c 'from dlaunch.torch import elastic; print(elastic.__file__)'
expect_code 0; expect_out "^$tmp/home/venv/lib/python3[.0-9]*/site-packages/dlaunch/torch/elastic.py\$"
run as_user venv/bin/dlaunch --nproc 1 venv/bin/python -c 'import sys; print("dlaunch_start" in sys.modules)'
expect_code 0; expect_out '^\[0\] True$'
run as_user bash -euc '. venv/bin/activate; ninja -C build uninstall'; expect_code 0
diff ../before <(cd venv && find . | sort) || fail "left behind"

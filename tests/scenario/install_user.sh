# An ordinary user installs into ~/.local as the README says. The README's C, C++ and Python programs build and
# run with no variable but PATH. After uninstall nothing is left.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
install=$(readme_lines '--prefix ~/.local'; readme_lines '^meson install -C build$' | head -n 1)
path=$(readme_lines 'PATH=~/.local')
compile=$(readme_lines '^c\+\+ .*dlaunch --cflags')
[ "$(printf '%s\n' "$install" "$path" "$compile" | wc -l)" = 4 ] || fail "the README installs otherwise"
user_copy

run as_user bash -euo pipefail -c "$meson_of_a_copy{ $install
} | cat"; expect_code 0
expect_out "dlaunch is in $tmp/home/.local/bin, which is not in PATH"
grep PYTHONPATH out && fail "the user site needs no PYTHONPATH"
expect_installed_well .local
readme_programs
sed -i "s|^c++ .*|$compile|; s|pkg-config \(.*\) dlring|dlaunch \1|" commands
run as_user bash -euxc "$path
$(cat commands)"; programs_said
run as_user bash -euc 'ninja -C build uninstall'; expect_code 0
[ -z "$(find .local -mindepth 1 2>/dev/null)" ] || fail "left behind: $(find .local)"

# The prefix belongs to no Python: the installation says which variable to set, and no other is needed.
[ $has_torch = 1 ] || exit 0
run as_user bash -euo pipefail -c "${meson_of_a_copy}meson configure build --prefix ~/elsewhere
  meson install -C build | cat"
expect_code 0; expect_out '^  export PYTHONPATH='
run as_user bash -euxc "$(grep '^  export PYTHONPATH=' out); elsewhere/bin/dlaunch --nproc 4 hello_torch.py"
expect_code 0; expect_out '^\[3\] rank 3 of 4: 6$'

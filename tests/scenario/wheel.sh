# pip installs a wheel into an empty virtual environment of an ordinary user without a compiler. The README's
# programs for Python run unchanged. After pip uninstall nothing is left. A wheel of a packaged build is hardened,
# and needs no newer glibc than 2.34.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
need_package
wheel_up
run as_pip_user pip install --quiet numpy
[ "$code" = 0 ] || skip "pip has no network for NumPy: $(tail -n 1 err)"
run as_pip_user pip install --quiet --no-index "$wheel"; expect_code 0
grep -E 'WARNING' err && fail "pip warns"
! root || mount -t tmpfs hidden "$BUILD" || fail "the build is not hidden"

as_pip_user sh -c 'command -v cc c++ gcc g++ clang' && fail "there is a compiler"
command=$(grep '^dlaunch --nproc 4 hello\.py$' ../home/commands) || fail "the README runs hello.py otherwise"
run as_pip_user sh -c "$command"; expect_code 0
ranks_said
run as_pip_user dlaunch --nproc 2 dlaunch-bench all_reduce -b 8; expect_code 0
run as_pip_user dlaunchctl --version; expect_code 0
run as_pip_user dlaunch --nproc 1 python -c 'import sys; print("dlaunch_start" in sys.modules)'; expect_code 0
expect_out '^\[0\] True$'
run as_pip_user python -c 'import dlaunch.elastic, importlib.metadata as m; assert dlaunch.__version__ == m.version("dlaunch")'
expect_code 0
for file in share/man/man1/dlaunch.1 include/dlaunch/ring.h share/bash-completion/completions/dlaunch share/dlaunch/sbom.cdx.json; do
  [ -s "venv/$file" ] || fail "the wheel lacks $file"
done
cmp "$SOURCE/LICENSE" venv/lib/python*/site-packages/dlaunch-*.dist-info/licenses/LICENSE || fail "the wheel lacks the license"
for line in 'Metadata-Version: 2.4' 'License-Expression: Apache-2.0' 'License-File: LICENSE'; do
  grep -qx "$line" venv/lib/python*/site-packages/dlaunch-*.dist-info/METADATA || fail "the metadata lack $line"
done
if command -v cc >/dev/null; then  # with a compiler, the README's C programs build, too
  run as_user sh -c 'PATH=$HOME/venv/bin:$PATH; cc hello.c $(dlaunch --cflags --libs) -o hello-c && dlaunch --nproc 2 ./hello-c'
  expect_code 0; expect_out '^\[1\] rank 1 of 2: 1$'
fi

if [ "$is_packaged" = True ]; then
  [[ $wheel =~ manylinux_2_([0-9]+)_ ]] && [ "${BASH_REMATCH[1]}" -le 34 ] || fail "$wheel is for too new a glibc"
  mkdir ../unpacked && python3 -m zipfile -e "$wheel" ../unpacked && elf_files ../unpacked >../elf || fail "not unpacked"
  [ "$(grep -cv dlring_torch ../elf)" = 6 ] || fail "not 3 programs, 2 libraries and 1 module: $(cat ../elf)"
  while read -r file; do
    hardened "$file"
    case $file in *dlring_torch*) also='|lib(stdc\+\+|c10|torch_cpu)\.so.*' ;; *) also= ;; esac
    readelf -dW "$file" | grep NEEDED | grep -vE "\[(lib(c|m|z|gcc_s|dlring|dlelastic)\.so\.[0-9]+|ld-linux.*$also)\]\$" &&
      fail "$file needs a library that a system may lack"
    readelf -dW "$file" | grep -E 'R(UN)?PATH' | grep -vE '\[\$ORIGIN[^:]*(:\$ORIGIN[^:]*)*\]$' &&
      fail "$file looks for libraries in a folder of another machine"
  done <../elf
  marks_targets venv/lib/libdlring.so.0 dl_init
  marks_targets venv/lib/libdlelastic.so.0 dl_state_new
  marks_targets "$(echo venv/lib/python*/site-packages/dlaunch/_core.abi3.so)" PyInit__core
else
  echo "not a packaged build (-Dpackaged=true): hardening is not looked at"
fi

run as_pip_user pip uninstall --quiet --yes dlaunch; expect_code 0
as_pip_user python -m pip freeze --quiet | sed 's/==.*//' >../others
as_pip_user pip uninstall --quiet --yes $(cat ../others) || fail "NumPy stays"
everything | diff ../before - || fail "left behind"

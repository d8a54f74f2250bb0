# A wheel, installed by pip into an empty virtual environment of an ordinary user who has no compiler: the README's
# programs for Python run as they are; uninstalled, nothing is left. A wheel of a packaged build is hardened, and
# asks for no newer glibc than 2.34.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
compgen -G "$BUILD/python/dlaunch/_core*.so" >/dev/null || skip "the package was not built: it needs python3-dev"
for python in ${PACKAGE_PYTHON:-/usr/bin/python3 python3 none}; do
  "$python" -c 'import ensurepip, venv' 2>/dev/null && break
done
[ "$python" != none ] || skip "no Python here makes virtual environments (python3-venv)"
python=$("$python" -c 'import sys; print(sys.executable)')  # not pyenv's script in its place
option() { python3 -c 'import json, sys
print(next(o["value"] for o in json.load(open(sys.argv[1])) if o["name"] == sys.argv[2]))' "$BUILD/meson-info/intro-buildoptions.json" "$1"; }

chmod 711 "$tmp" && mkdir home wheels || fail "no folders"
run env PYTHON="$python" "$SOURCE/script/package" wheel --from "$BUILD" --out wheels
[ "$code" != 69 ] || skip "meson-python is not installed, and pip has no network"
is_packaged=$(option packaged)
# Only what is built for it runs on other systems.
platform=linux; [ "$is_packaged" != True ] || platform='manylinux_2_[0-9]+'
expect_code 0; expect_out "/dlaunch-[0-9.]+-cp39-abi3-${platform}_$(uname -m)\.whl$"
wheel=$(cat out)
chmod 644 "$wheel"

cd home || exit 1
readme_programs
root && chown -R 65534:65534 .
# What pip was told of where it finds packages, it is told here, too.
settings=$(env | grep -E '^(PIP_|SSL_CERT|REQUESTS_CA|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY)' | tr '\n' ' ')
mkdir ../few && for tool in sh env cat; do ln -s "$(command -v $tool)" ../few/; done
# as_pip_user COMMAND…: by a user whose PATH has the environment, and no compiler.
as_pip_user() { as_user env PATH="$tmp/home/venv/bin:$tmp/few" $settings "$@"; }
as_user "$python" -m venv venv || fail "no virtual environment"
everything() { (cd venv && find . ! -type d | grep -v '/__pycache__/' | sort); }  # pip leaves empty folders
everything >../before
run as_pip_user pip install --quiet numpy
[ "$code" = 0 ] || skip "pip has no network for NumPy: $(tail -n 1 err)"
run as_pip_user pip install --quiet --no-index "$wheel"; expect_code 0
grep -E 'WARNING' err && fail "pip warns"
! root || mount -t tmpfs hidden "$BUILD" || fail "the build is not hidden"

as_pip_user sh -c 'command -v cc c++ gcc g++ clang' && fail "there is a compiler"
command=$(grep '^dlaunch --nproc 4 hello\.py$' ../home/commands) || fail "the README runs hello.py otherwise"
run as_pip_user sh -c "$command"; expect_code 0
for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4: 6$"; done
run as_pip_user dlaunch --nproc 2 dlaunch-bench all_reduce -b 8; expect_code 0
run as_pip_user dlaunchctl --version; expect_code 0
run as_pip_user python -c 'import dlaunch.elastic, importlib.metadata as m; assert dlaunch.__version__ == m.version("dlaunch")'
expect_code 0
for file in share/man/man1/dlaunch.1 include/dlaunch/ring.h share/bash-completion/completions/dlaunch share/dlaunch/sbom.cdx.json; do
  [ -s "venv/$file" ] || fail "the wheel lacks $file"
done
cmp "$SOURCE/LICENSE" venv/lib/python*/site-packages/dlaunch-*.dist-info/licenses/LICENSE || fail "the wheel lacks the license"
for line in 'Metadata-Version: 2.4' 'License-Expression: Apache-2.0' 'License-File: LICENSE'; do
  grep -qx "$line" venv/lib/python*/site-packages/dlaunch-*.dist-info/METADATA || fail "the metadata lack $line"
done
if command -v cc >/dev/null; then  # who has one builds programs with it
  run as_user sh -c 'PATH=$HOME/venv/bin:$PATH; cc hello.c $(dlaunch --cflags --libs) -o hello-c && dlaunch --nproc 2 ./hello-c'
  expect_code 0; expect_out '^\[1\] rank 1 of 2: 1$'
fi

# hardened FILE: position-independent, relocations read-only before the program begins, stack and control flow
# guarded, checked forms of what writes memory.
hardened() {
  readelf -hW "$1" | grep -q 'Type: *DYN' || fail "$1 has a fixed address"
  readelf -lW "$1" | grep -q GNU_RELRO || fail "$1 lacks RELRO"
  readelf -dW "$1" | grep -qE 'BIND_NOW|FLAGS_1.*NOW' || fail "$1 binds its symbols late"
  readelf -lW "$1" | grep GNU_STACK | grep -q 'RW ' || fail "$1 has a stack that can be executed"
  readelf -sW "$1" | grep -q __stack_chk_fail || fail "$1 does not guard its stack"
}
# marks_targets FILE FUNCTION: indirect jumps are marked. (The file's own note that all of it is depends on how the
# C library's start files were built.)
marks_targets() {
  [ "$(uname -m)" != x86_64 ] || objdump -d --disassemble="$2" "$1" | grep -q endbr64 || fail "$1 does not guard its control flow"
}
if [ "$is_packaged" = True ]; then
  [[ $wheel =~ manylinux_2_([0-9]+)_ ]] && [ "${BASH_REMATCH[1]}" -le 34 ] || fail "$wheel is for too new a glibc"
  for file in venv/bin/dlaunch venv/bin/dlaunchctl venv/bin/dlaunch-bench venv/lib/libdl*.so.0 \
    venv/lib/python*/site-packages/dlaunch/_core.abi3.so; do
    hardened "$file"
    readelf -dW "$file" | grep NEEDED | grep -vE '\[(lib(c|m|z|gcc_s|dlring|dlelastic)\.so\.[0-9]+|ld-linux.*)\]$' &&
      fail "$file needs a library that a system may lack"
  done
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

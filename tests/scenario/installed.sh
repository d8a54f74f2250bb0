# Scenarios source this instead of common.sh if they install dlaunch and use it with the README's own commands.
# Root runs them in a mount namespace of their own, where the installed files do not see the build folder, and
# the ordinary user is another user. Any other user installs as himself.
# Nothing from outside may be mounted below $tmp, because the end of the scenario removes $tmp.
set -u
root() { [ "$(id -u)" = 0 ]; }
if root && [ "${DL_OWN_MOUNTS:-}" != inside ]; then
  unshare --mount true 2>/dev/null || { echo "SKIP: mounts are not allowed here"; exit 77; }
  DL_OWN_MOUNTS=inside exec unshare --mount --fork --kill-child bash "$0" "$@"
fi
unset DL_OWN_MOUNTS
source "$SOURCE/tests/scenario/common.sh"
for tool in pkg-config readelf; do command -v $tool >/dev/null || skip "$tool is not installed"; done
export LIBMOUNT_UTAB=/dev/null  # so that mount(8) leaves no /run/mount
torch_built && has_torch=1 || has_torch=0
compgen -G "$BUILD/python/dlaunch/_core*.so" >/dev/null && /usr/bin/python3 -c 'import numpy' 2>/dev/null && has_numpy=1 || has_numpy=0

# Prints the README's commands that match, one a line.
readme_lines() { sed -n 's/^    //p' "$SOURCE/README.md" | grep -E -- "$1"; }
# Writes the README's programs hello.cc, hello.c, hello.py, hello_torch.py and hello_elastic.py, and to ./commands the
# README's commands that build and run them.
readme_programs() {
  awk 'match($0, /`examples\/hello[a-z_]*\.[a-z]+`\):$/) { name = substr($0, RSTART + 10); sub(/`.*/, "", name) }
    name && /^```/ { if (inside) name = ""; inside = !inside; next }
    name && inside { print > name }' "$SOURCE/README.md"
  for name in hello.cc hello.c hello.py hello_torch.py hello_elastic.py; do [ -s $name ] || fail "the README does not show $name"; done
  readme_lines '^(c\+\+|cc) .*pkg-config|^dlaunch --nproc 4 (\./hello|hello(_torch)?\.py)' >commands
  [ "$(wc -l <commands)" = 6 ] || fail "the README builds and runs its programs otherwise: $(cat commands)"
  [ $has_torch = 1 ] || { echo "without PyTorch's back end: hello_torch.py is not tried"; sed -i '/hello_torch\.py/d' commands; }
  [ $has_numpy = 1 ] || { echo "without the package or NumPy: hello.py is not tried"; sed -i '/hello\.py/d' commands; }
}
# The programs printed the right output.
programs_said() {
  expect_code 0
  local r programs=$((2 + has_torch + has_numpy))
  for r in 0 1 2 3; do
    [ "$(grep -c "^\[$r\] rank $r of 4: 6\$" out)" = $programs ] || fail "rank $r did not speak $programs times"
  done
}

# Each of four ranks printed the output of the README's first programs.
ranks_said() { local r; for r in 0 1 2 3; do expect_out "^\[$r\] rank $r of 4: 6$"; done; }
# The ranks of the README's elastic program did so, too.
ranks_learned() {
  [ "$(grep -c 'learned: the weights are 1 within [0-9]e-0[5-9]$' out)" = 4 ] || fail "not every rank has learned"
}

# The files installed below $1 are stripped, use nothing in the build folder, and have debug files.
expect_installed_well() {
  local file files=0
  while read -r file; do
    files=$((files + 1))
    readelf -dW "$file" | grep -E 'R(UN)?PATH' | grep -qF "$BUILD" && fail "$file looks into the build folder"
    readelf -SW "$file" | grep -q '\.debug_info' && fail "$file is not stripped; a build folder from before has strip=false"
  done < <(find "$1" -type f \( -path '*/bin/dlaunch*' -o -name '*dl*.so*' -o -name '_core*.so' \))
  [ "$files" -ge 5 ] || fail "only $files programs and libraries below $1"
  [ "$(find "$1" -path '*/lib/debug/.build-id/*.debug' | wc -l)" = "$files" ] || fail "not $files debug files below $1"
}

# as_user COMMAND…: runs it with an ordinary user's rights, and with no variable but HOME and PATH.
as_user() {
  local other=()
  ! root || other=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  "${other[@]}" env -i HOME="$tmp/home" PATH=/usr/bin:/bin "$@"
}
# user_copy: copies the source, and the parts of the build that an installation needs, to the user's home, which
# becomes the current folder.
user_copy() {
  chmod 711 "$tmp" && mkdir home || fail "no home"
  python3 - "$SOURCE" "$BUILD" home <<'P' || fail "the build could not be copied"
import json, os, shutil, sys
source, build, home = sys.argv[1:]
def left_out(folder, names):  # also logs and caches, which other tests change meanwhile
    return [n for n in names if n in (".git", "__pycache__") or n.endswith(".log") or os.path.exists(f"{folder}/{n}/meson-private")]
shutil.copytree(source, f"{home}/source", ignore=left_out, symlinks=True)
with open(f"{build}/meson-info/intro-install_plan.json") as file:
    plan = json.load(file)
for name in ("meson-private", "meson-info"):
    shutil.copytree(f"{build}/{name}", f"{home}/build/{name}")
for path in (path for kind in plan.values() for path in kind if path.startswith(build + "/")):
    target = f"{home}/build{path.removeprefix(build)}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    (shutil.copytree if os.path.isdir(path) else shutil.copy2)(path, target)
P
  ! root || { chown -R 65534:65534 home && mount -t tmpfs hidden "$BUILD"; } || fail "the build is not hidden"
  cd home || exit 1
}
# Stands before commands of the README, and replaces `meson configure build …` and `meson install -C build` for a
# copy. The copy can be configured only with the new place of its source, and is already built.
meson_of_a_copy='meson() {
  case $1 in
    configure) shift 2; command meson setup --reconfigure build source "$@" >setup.log 2>&1 || { cat setup.log; return 1; } ;;
    *) command meson "$@" --no-rebuild ;;
  esac
}
'

# wheel_up FOLDER…: makes $wheel, a wheel of the build with libraries for the PyTorch in these folders, or takes the
# wheel that WHEEL names, and sets $is_packaged. The current folder becomes ./home, with a virtual environment of the
# ordinary user and the README's programs.
wheel_up() {
  local python torch=() platform=linux
  for python in ${PACKAGE_PYTHON:-/usr/bin/python3 python3 none}; do
    "$python" -c 'import ensurepip, venv' 2>/dev/null && break
  done
  [ "$python" != none ] || skip "no Python here makes virtual environments (python3-venv)"
  python=$("$python" -c 'import sys; print(sys.executable)')  # pyenv has a script in place of the program
  chmod 711 "$tmp" && mkdir home wheels few || fail "no folders"
  for folder; do torch+=(--torch "$folder"); done
  if [ -n "${WHEEL:-}" ]; then
    cp "$WHEEL" wheels && readlink -f wheels/* >out; code=$?
    [[ $WHEEL == *-manylinux* ]] && is_packaged=True || is_packaged=False
  else
    run env PYTHON="$python" "$SOURCE/script/package" wheel --from "$BUILD" --out wheels ${torch[@]+"${torch[@]}"}
    [ "$code" != 69 ] || skip "meson-python is not installed, and pip has no network"
    is_packaged=$(build_option packaged)
  fi
  # Only a build with -Dpackaged=true runs on other systems.
  [ "$is_packaged" != True ] || platform='manylinux_2_[0-9]+'
  expect_code 0; expect_out "/dlaunch-[0-9.]+-cp39-abi3-${platform}_$(uname -m)\.whl$"
  wheel=$(cat out)
  chmod 644 "$wheel"
  # pip gets the same options for finding packages here, too.
  settings=$(env | grep -E '^(PIP_|SSL_CERT|REQUESTS_CA|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY)' | tr '\n' ' ')
  for tool in sh env cat; do ln -s "$(command -v $tool)" few/; done
  cd home || exit 1
  readme_programs
  ! root || chown -R 65534:65534 .
  as_user "$python" -m venv venv || fail "no virtual environment"
  everything >../before
}
build_option() { python3 -c 'import json, sys
print(next(o["value"] for o in json.load(open(sys.argv[1])) if o["name"] == sys.argv[2]))' "$BUILD/meson-info/intro-buildoptions.json" "$1"; }
# as_pip_user COMMAND…: runs it as a user whose PATH has the environment, and no compiler.
as_pip_user() { as_user env PATH="$tmp/home/venv/bin:$tmp/few" $settings "$@"; }
everything() { (cd venv && find . ! -type d | grep -v '/__pycache__/' | sort); }  # pip leaves empty folders

# hardened FILE: the file is position-independent, has relocations that are read-only before the program begins, guards
# its stack and control flow, and calls the checked forms of functions that write memory.
hardened() {
  readelf -hW "$1" | grep -q 'Type: *DYN' || fail "$1 has a fixed address"
  readelf -lW "$1" | grep -q GNU_RELRO || fail "$1 lacks RELRO"
  readelf -dW "$1" | grep -qE 'BIND_NOW|FLAGS_1.*NOW' || fail "$1 binds its symbols late"
  readelf -lW "$1" | grep GNU_STACK | grep -q 'RW ' || fail "$1 has a stack that can be executed"
  readelf -sW "$1" | grep -q __stack_chk_fail || fail "$1 does not guard its stack"
  # Modules for Python and PyTorch have no calls that write into arrays.
  case $1 in
    *_core.abi3.so | *dlring_torch*) ;;
    *) readelf -sW "$1" | grep -qE ' __[a-z]+_chk(@|$)' || fail "$1 has no checked forms of memory functions" ;;
  esac
  [ "$(uname -m)" != x86_64 ] || readelf -nW "$1" | grep -q SHSTK || fail "$1 is not marked as fit for a shadow stack"
}
# is_elf FILE: whether it is a program, library or module. elf_files FOLDER: prints those below it.
is_elf() { [ -f "$1" ] && [ ! -L "$1" ] && head -c 4 "$1" | tail -c 3 | grep -qx ELF; }
elf_files() { local file; find "$1" -type f | while read -r file; do ! is_elf "$file" || echo "$file"; done; }
# marks_targets FILE FUNCTION: whether targets of indirect jumps are marked. (A linker records that a whole file has
# these marks only if the C library's start files have them, too. Those of Debian 12 lack them.)
marks_targets() {
  [ "$(uname -m)" = x86_64 ] || return 0
  local at; at=$((16#$(readelf --dyn-syms -W "$1" | awk -v name="$2" '{ sub(/@.*/, "", $8) } $8 == name { print $2; exit }')))
  objdump -d --start-address=$at --stop-address=$((at + 4)) "$1" | grep -q endbr64 || fail "$1 does not guard its control flow"
}

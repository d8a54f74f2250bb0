# dlaunch.torch with a release of PyTorch for which it has no library. It compiles a library once, if its
# source is there, and otherwise says which releases it serves.
source "$SOURCE/tests/scenario/common.sh"
need_torch
release=$("$python" -c 'import torch; print(".".join(torch.__version__.split(".")[:2]))')
need_package
here=modules/dlaunch/torch
mkdir -p $here && cp "$BUILD"/python/dlaunch/{*.py,_core*.so} modules/dlaunch && cp "$BUILD"/python/dlaunch/torch/*.py $here
export LD_LIBRARY_PATH="$BUILD/elastic/state:$LD_LIBRARY_PATH"
# A library for the other ABI of C++ does not serve the release.
touch $here/libdlring_torch-0.{9,12}.so "$here/libdlring_torch-$release-oldabi.so"
export PYTHONPATH=$PWD/modules XDG_CACHE_HOME=$PWD/cache PYTHONWARNINGS=ignore

run "$python" -c 'import dlaunch.torch'
expect_code 1
expect_err "ImportError: dlaunch.torch has no library for PyTorch $release.*, and its source is not here. It serves PyTorch 0.9, 0.12, $release-oldabi$"
rm "$here/libdlring_torch-$release-oldabi.so"
python3 "$SOURCE/ring/torch/build_release.py" --copy-source $here/dlring_torch_source || fail "the source was not copied"
run env CXX=false "$python" -c 'import dlaunch.torch'
expect_code 1; expect_err "^dlaunch.torch compiles its library for PyTorch $release"
expect_err 'ImportError: .* cannot be compiled: the compiler failed'
[ -z "$(find cache -name '*.so')" ] || fail "a library is there that was not compiled"

# A compiler that records its arguments, and writes a file that is not a library.
cat >compiler <<'S' && chmod +x compiler
#!/bin/sh
echo "$@" >>"$0.asked"
while [ "$1" != -o ]; do shift; done
echo "no library" >"$2"
S
counted() { wc -l <compiler.asked; }
# imports [FIRST]: imports dlaunch.torch with that compiler, after the statement FIRST.
imports() { run env CXX="$PWD/compiler" "$python" -c "${1:-}
import dlaunch.torch"; }
imports; expect_code 1
expect_err "ImportError: dlaunch.torch cannot load $PWD/cache/dlaunch/.*/libdlring_torch-$release.so, which it has just compiled"
[ "$(counted)" = 2 ] || fail "a file that cannot be loaded was not replaced once"
made=$(echo cache/dlaunch/*/libdlring_torch-$release.so)
[ "$(stat -c %a cache/dlaunch "${made%/*}" "$made" | sort -u)" = 700 ] || fail "others come to the cache"
imports "import torch; torch._C._GLIBCXX_USE_CXX11_ABI = False"; expect_code 1
expect_err "ImportError: .*/libdlring_torch-$release-oldabi.so, which it has just compiled"
tail -n 1 compiler.asked | grep -q -- '-D_GLIBCXX_USE_CXX11_ABI=0 ' || fail "compiled with the new ABI"
asked=$(counted)
cat >refused.py <<'P'
import os, sys
import torch  # once for all children

def refused(reason):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            import dlaunch.torch
            told = "it was imported"
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told.startswith("ImportError: ") and f" is not safe to load from, for {reason}: remove it" in told, (reason, told)

for place in sys.argv[1:]:
    os.chmod(place, 0o770)
    refused("other users can write to it")
    os.chmod(place, 0o700)
    os.rename(place, "moved")
    os.symlink(os.path.abspath("moved"), place)
    refused("it is a link")
    os.remove(place)
    os.rename("moved", place)
    if os.getuid() == 0:
        os.chown(place, 65534, -1)
        refused("it belongs to user 65534")
        os.chown(place, 0, -1)
P
run env CXX="$PWD/compiler" "$python" refused.py cache/dlaunch "${made%/*}" "$made"; expect_code 0
[ "$(counted)" = "$asked" ] || fail "compiled where others can write"
XDG_CACHE_HOME=cache imports; expect_code 1; expect_err 'ImportError: .* cache/dlaunch, which is not absolute'
mkdir other && echo "version = 1" >other/version.py
run python3 "$SOURCE/ring/torch/build_release.py" other out; expect_code 1
expect_err '^build_release: other/version.py does not say which release'
rm -r cache

case $release in 1.* | 2.[0-3]) exit 0 ;; esac
readlink -f "$BUILD/ring" >$here/dlring_torch_source/ring_folders
cat >alone.py <<'P'
import torch, torch.distributed as dist, dlaunch.torch
dist.init_process_group("dlring", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
print("works", x.sum().item())
P
# Only one rank of a host compiles.
run dlaunch --nproc 3 "$python" alone.py
expect_code 0; [ "$(grep -c 'works 3.0$' out)" = 3 ] || fail "not all ranks work"
[ "$(grep -c 'compiles its library' err)" = 1 ] || fail "not one rank compiled"
made=$(echo cache/dlaunch/*/libdlring_torch-$release.so)
echo "no library" >"$made"
for turn in compiles finds; do
  run "$python" alone.py
  expect_code 0; expect_out '^works 3.0$'
  [ $turn = compiles ] && expect_err 'compiles its library'
done
[ ! -s err ] || fail "the second time it said something"

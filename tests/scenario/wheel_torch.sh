# pip installs a wheel with libraries for releases of PyTorch, for an ordinary user without a compiler. The README's
# programs for PyTorch run unchanged, and nothing is compiled. dlaunch.torch refuses another release, and lists the
# releases that it serves. After pip uninstall nothing is left. WHEEL_TORCH names Pythons with PyTorch. WHEEL may name a
# wheel.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
need_package
folders=()
version=$("${PACKAGE_PYTHON:-/usr/bin/python3}" -c 'import sys; print(*sys.version_info[:2])')
for python in ${WHEEL_TORCH:-${TORCH_PYTHON:-} "$BUILD/pytorch-venv/bin/python"}; do
  folder=$("$python" -c 'import os, sys, numpy, torch
fits = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) and [str(n) for n in sys.version_info[:2]] == sys.argv[1:]
print(os.path.dirname(torch.__file__) if fits else "")' $version 2>/dev/null)
  [ -z "$folder" ] || folders+=("$folder")
done
[ ${#folders[@]} != 0 ] || skip "no PyTorch 2.4 or newer is here: WHEEL_TORCH names Pythons ${version/ /.} that have one, and NumPy"
wheel_up "${folders[@]}"
run as_pip_user pip install --quiet --no-index "$wheel"; expect_code 0
site=$(echo "$PWD"/venv/lib/python*/site-packages)
! root || mount -t tmpfs hidden "$BUILD" || fail "the build is not hidden"

for folder in "${folders[@]}"; do
  packages=$(dirname "$folder")
  # The ordinary user may have no access to that folder.
  ! root || { mount --bind "$packages" /mnt && packages=/mnt; } || fail "PyTorch's folder is not to be had"
  echo "$packages" | as_user tee "$site/others.pth" >/dev/null
  release=$(as_pip_user python -c 'import torch; print(".".join(torch.__version__.split(".")[:2]))') || fail "no PyTorch in $folder"
  [ -e "$site/dlaunch/torch/libdlring_torch-$release.so" ] || fail "the wheel has no library for PyTorch $release"
  for program in hello hello_torch; do
    run as_pip_user dlaunch --nproc 4 $program.py; expect_code 0
    ranks_said
  done
  run as_pip_user sh -c "$(readme_lines '^dlaunch .* hello_elastic.py$')"; expect_code 0
  ranks_learned
  echo "PyTorch $release: the README's programs run"
  ! root || umount /mnt
done
[ ! -e .cache/dlaunch ] || fail "a library was compiled"
for file in "$site"/dlaunch/torch/*.so; do
  hardened "$file"
  # The versions in GCC 11, which is on the systems with the oldest glibc that a wheel serves.
  newest=$(readelf -VW "$file" | grep -oE 'GLIBCXX_3\.4\.[0-9]+' | sort -V | tail -n 1)
  [ "${newest##*.}" -le 29 ] || fail "$file needs $newest of the C++ library"
done

# A PyTorch that is installed later, or is broken, does not disturb programs that do not import dlaunch.torch.
as_user rm "$site/others.pth"
as_user mkdir -p "$site/torch/distributed"
echo '__version__ = "9.9.0"; from types import SimpleNamespace; _C = SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)' |
  as_user tee "$site/torch/__init__.py" >/dev/null
echo '__version__ = "9.9.0"' | as_user tee "$site/torch/version.py" >/dev/null
echo 'ProcessGroup = None' | as_user tee "$site/torch/distributed/__init__.py" >/dev/null
run as_pip_user python -c 'import dlaunch.elastic'; expect_code 0
run as_pip_user python -c 'import dlaunch.torch'; expect_code 1
expect_err "ImportError: dlaunch.torch has no library for PyTorch 9.9.0, and it cannot be compiled: .*c\+\+.* It serves PyTorch .*2\.[0-9]+$"
as_user rm -r "$site/torch"

run as_pip_user pip uninstall --quiet --yes dlaunch; expect_code 0
everything | diff ../before - || fail "left behind"

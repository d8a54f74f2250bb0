# Root installs into an empty /usr/local. The README's C, C++ and Python programs build and run with no variable
# set, CMake finds the libraries, and the modulefile names the folders. After uninstall nothing is left.
source "$SOURCE/tests/scenario/installed.sh" || exit 1
root || skip "only root installs there"
[ "$(build_option prefix)" = /usr/local ] || skip "this build is for another prefix"
# Meson's own guess depends on the machine's packages: lib64 if dpkg-dev is missing.
[ "$(build_option libdir)" = lib ] || fail "libraries go to $(build_option libdir)"
for folder in /usr/local /var/cache/ldconfig; do
  [ ! -d $folder ] || mount -t tmpfs empty $folder || fail "no empty $folder"
done
# Other scenarios install from this build folder meanwhile, and uninstall removes what the log has.
mkdir logs && mount --bind logs "$BUILD/meson-logs" || fail "the log of the installation is not our own"
cp -a /etc etc && mount --bind etc /etc || fail "no /etc of its own"  # ldconfig writes there
command -v meson ninja >/dev/null || skip "Meson is in /usr/local itself"
clean() { env -i HOME="$tmp" PATH=/usr/local/bin:/usr/bin:/bin "$@"; }

run env PATH="/usr/local/bin:/usr/sbin:$PATH" bash -o pipefail -c 'meson install -C "$BUILD" --no-rebuild | cat'; expect_code 0
grep -E 'PYTHONPATH|not in PATH' out && fail "the installation asks for a variable"
mkdir no-build && mount --bind no-build "$BUILD" || fail "the build folder is not hidden"
expect_installed_well /usr/local

# All sources are there from which dlaunch.torch compiles a library for another PyTorch.
python3 "$SOURCE/ring/torch/build_release.py" --copy-source whole || fail "the source was not copied"
diff -r --exclude ring_folders whole /usr/local/lib/python3*/*-packages/dlaunch/torch/dlring_torch_source ||
  fail "the installed source of dlaunch.torch lacks something"

readme_programs
run clean bash -euxc "$(cat commands)"; programs_said
# A program linked without pkg-config's flags runs, because the loader knows the folder.
run clean c++ -std=c++20 hello.cc -ldlring -o by-hand; expect_code 0
run clean ./by-hand; expect_code 0; expect_out '^rank 0 of 1: 0$'
run clean dlaunch --nproc 2 dlaunch-bench all_reduce -b 8; expect_code 0
if [ $has_torch = 1 ]; then
  run clean python3 -c 'from dlaunch.torch import elastic; print(elastic.__file__)'
  expect_code 0; expect_out '^/usr/local/lib/python3.*/dlaunch/torch/elastic.py$'
fi

if command -v cmake >/dev/null; then
  mkdir cmake && cp hello.c hello.cc cmake
  cat >cmake/CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.13)
project(hello LANGUAGES C)
find_package(dlring 0.1 REQUIRED CONFIG)
add_executable(hello-c hello.c)
target_link_libraries(hello-c dlring::dlring)
enable_language(CXX)
find_package(dlelastic REQUIRED CONFIG)
add_executable(hello hello.cc)
target_link_libraries(hello dlelastic::dlelastic)
target_compile_features(hello PRIVATE cxx_std_20)
find_package(dlring 0.9 QUIET CONFIG)
if(dlring_FOUND)
  message(FATAL_ERROR "0.9 was found")
endif()
C
  run clean sh -c 'cmake -S cmake -B cmake/build && cmake --build cmake/build'; expect_code 0
  for program in hello hello-c; do
    run clean dlaunch --nproc 2 cmake/build/$program; expect_code 0; expect_out '^\[1\] rank 1 of 2: 1$'
  done
fi
if command -v tclsh >/dev/null; then
  cat >load.tcl <<'T'
proc prepend-path {name folder} { puts "$name $folder" }
foreach ignored {module-whatis conflict} { proc $ignored args {} }
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
T
  run tclsh load.tcl /usr/local/share/modulefiles/dlaunch/*; expect_code 0
  expect_out '^PATH /usr/local/bin$'; expect_out '^PKG_CONFIG_PATH /usr/local/lib/.*pkgconfig$'
  while read -r name folder; do [ -d "$folder" ] || fail "the modulefile's $name names no folder: $folder"; done <out
fi

# The whole prefix is moved: each part still finds the others.
mkdir moved && cp -a /usr/local/. moved && mount -t tmpfs gone /usr/local || fail "not moved"
pc=$(dirname "$(find moved -name dlring.pc)")
for flags in "$(moved/bin/dlaunch --cflags --libs)" "$(PKG_CONFIG_PATH=$tmp/$pc pkg-config --cflags --libs dlring)" \
  "$(PKG_CONFIG_PATH=$tmp/$pc pkg-config --define-prefix --cflags --libs dlring)"; do
  rm -f hello
  run clean bash -c "c++ -std=c++20 hello.cc $flags -o hello && moved/bin/dlaunch --nproc 4 ./hello"
  expect_code 0; expect_out '^\[3\] rank 3 of 4: 6$'
done
umount /usr/local && umount "$BUILD" || fail "still hidden"

if [ "$(build_option optimization)" != 0 ]; then
  size=$(stat -c %s /usr/local/bin/dlaunch)
  [ "$size" -lt $((10 << 20)) ] || fail "dlaunch has $size bytes"
fi
run ninja -C "$BUILD" uninstall; expect_code 0
[ -z "$(ls -A /usr/local)" ] || fail "left behind: $(find /usr/local)"

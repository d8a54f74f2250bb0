# A user's own program. The installed dlaunch prints the compiler's flags, and the README's programs in C++ and in
# C run with the installed launcher, without it, and alone. A compiler in an older mode gets one clear error.
source "$SOURCE/tests/scenario/common.sh"
unset LD_LIBRARY_PATH

meson install -C "$BUILD" --no-rebuild --destdir "$tmp/root" >install.log 2>&1 || fail "$(tail -n 5 install.log)"
bin=$(dirname "$(find "$tmp/root" -name dlaunch -path '*/bin/*')")
read -ra flags <<<"$("$bin/dlaunch" --cflags --libs)"

# Each header says that it needs C++20, and causes no other error.
for header in ring bucketer bucket_hooks elastic; do
  echo "#include <dlaunch/$header.hpp>" >old.cc
  run c++ -std=c++20 "${flags[@]}" -fsyntax-only old.cc; expect_code 0
  run c++ -std=c++17 "${flags[@]}" -fsyntax-only old.cc
  [ "$code" != 0 ] || fail "$header.hpp compiles as C++17"
  expect_err "error: .*<dlaunch/$header.hpp> needs C\+\+20: compile with -std=c\+\+20"
  [ "$(grep -c 'error:' err)" = 1 ] || fail "$header.hpp has more to say"
  [ "$(wc -l <err)" -le 5 ] || fail "$header.hpp has more to say"
done

# block LANGUAGE: prints the README's first block in this language.
block() { awk -v start="\`\`\`$1" '$0 == "```" && on { exit } on { print } $0 == start { on = 1 }' "$SOURCE/README.md"; }
block cpp >readme.cc; block c >readme.c
cp "$SOURCE/examples/hello.cc" "$SOURCE/examples/hello.c" .
for name in readme hello; do
  c++ -std=c++20 -Wall -Wextra -Werror "$name.cc" "${flags[@]}" -o "$name-cpp" 2>err || fail "$name.cc does not build"
  cc -std=c11 -Wall -Wextra -Werror "$name.c" "${flags[@]}" -o "$name-c" 2>err || fail "$name.c does not build"
done
for program in readme-cpp readme-c hello-cpp hello-c; do
  run "$bin/dlaunch" --nproc 3 "./$program"
  expect_code 0
  for r in 0 1 2; do expect_out "^\[$r\] rank $r of 3: 3\$"; done
done
run ./hello-c; expect_code 0; expect_out '^rank 0 of 1: 0$'
# With the variables of another launcher: rank 0 listens on MASTER_PORT, which the scenario holds.
cat >launch.py <<'P'
import os, socket, subprocess, sys
with socket.socket() as kept:
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(kept.getsockname()[1]))
    ranks = [subprocess.Popen(sys.argv[1:], env=dict(env, RANK=str(r))) for r in (0, 1)]
    sys.exit(max(rank.wait(60) for rank in ranks))
P
run python3 launch.py ./hello-cpp
expect_code 0; expect_out '^rank 0 of 2: 1$'; expect_out '^rank 1 of 2: 1$'
run "$bin/dlaunch" --nproc 2 "$bin/dlaunch-bench" all_reduce -b 8; expect_code 0
run nm -D --defined-only "$(find root -name 'libdlring.so.*.*')"
awk '$2 != "A" && $3 !~ /^dl_/ { print; bad++ } END { exit bad > 0 || NR < 10 }' out || fail "libdlring exports more than its API"

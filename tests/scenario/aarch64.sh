# The kernels for 64-bit ARM: a cross compiler builds them, they use NEON, and under qemu they pass
# their unit tests.
source "$SOURCE/tests/scenario/common.sh" || exit 1
for tool in aarch64-linux-gnu-g++ aarch64-linux-gnu-objdump qemu-aarch64; do
  command -v $tool >/dev/null || skip "no $tool"
done
compile() {  # LEVEL FILE…: makes objects in this folder
  local level=$1 file; shift
  for file in "$@"; do
    aarch64-linux-gnu-g++ -std=c++20 -D_GNU_SOURCE -fno-strict-aliasing -ffp-contract=off -Wno-psabi \
      -DFMT_HEADER_ONLY -DDOCTEST_CONFIG_NO_UNPREFIXED_OPTIONS "-I$SOURCE" "-I$SOURCE/ring/include" \
      -O"$level" -c "$SOURCE/$file" -o "$(basename "$file" .cc).o" || return
  done
}
compile 0 tests/unit/ring/reduce_test.cc & tests=$!
compile 0 tests/unit/main.cc ring/call/{plane,shape}.cc ring/kernels/program_op.cc base/{text,units}.cc || fail "not compiled"
compile 3 ring/kernels/{copy,reduce,wire_codec}.cc || fail "the kernels are not compiled"
wait $tests || fail "the tests are not compiled"

aarch64-linux-gnu-objdump -d reduce.o | tr '\t' ' ' > code
for instruction in 'fadd v[0-9]+\.4s' 'fadd v[0-9]+\.2d' 'add v[0-9]+\.4s' 'fcmgt v[0-9]+\.4s'; do
  grep -qE " $instruction" code || fail "the reductions use no $instruction"
done
aarch64-linux-gnu-g++ -static ./*.o -o kernels || fail "not linked"
run timeout 250 qemu-aarch64 kernels; expect_code 0
expect_out 'test cases: +[1-9][0-9]* .* 0 failed'

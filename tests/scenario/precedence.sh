# A flag overrides the environment, which overrides the file, which overrides the default; the workers show
# which value they get.
source "$SOURCE/tests/scenario/common.sh"
echo 'nproc = 3' >job.toml

# size_is N WORDS…: N workers ran.
size_is() {
  local wanted=$1; shift
  run "$@" sh -c 'echo size $WORLD_SIZE'
  expect_code 0
  [ "$(grep -c "size $wanted\$" out)" = "$wanted" ] || fail "expected $wanted workers: $*"
}
size_is 1 dlaunch
size_is 3 dlaunch --config job.toml
size_is 2 env DLAUNCH_NPROC=2 dlaunch
size_is 2 env DLAUNCH_NPROC=2 dlaunch --config job.toml
size_is 2 env DLAUNCH_NPROC=2 DLAUNCH_CONFIG=job.toml dlaunch
size_is 4 dlaunch --nproc 4 --config job.toml
size_is 4 env DLAUNCH_NPROC=2 dlaunch --nproc 4
size_is 4 env DLAUNCH_NPROC=2 dlaunch --nproc 4 --config job.toml

run env DLAUNCH_NPROC=none dlaunch true
expect_code 64
expect_err "^dlaunch: DLAUNCH_NPROC: 'none' is not a whole number"

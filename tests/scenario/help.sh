# --help and --version print to stdout, quickly, whatever other options are given.
source "$SOURCE/tests/scenario/common.sh"
run dlaunch --help
expect_code 0
head -n 1 out | grep -q '^Usage: dlaunch' || fail "help does not open with the usage"
expect_out '^Options that most jobs need:$'
expect_out '^ +--nproc N\|auto\|gpu'
[ "$(wc -l < out)" -le 70 ] || fail "--help is longer than a screen or two"
grep -q -- --straggler out && fail "--help has what few jobs need"
run dlaunch --help-all
expect_code 0
for group in Workers Placement Output 'Failure and time' 'Nodes and rendezvous' General; do
  expect_out "^$group:\$"
done
expect_out '^ +--nproc N\|auto\|gpu'
[ ! -s err ] || fail "help wrote to stderr"
awk 'length > 100 { exit 1 }' out || fail "help is wider than 100 columns"
run dlaunch help exit-codes; expect_code 0; expect_out '^  64 '
run dlaunch help coming-from-torchrun; expect_code 0; expect_out '^  --rdzv-conf$'
run dlaunch help --bind; expect_code 0; expect_out '--bind none'
run dlaunch help placment; expect_code 64; expect_err "no topic 'placment'; did you mean 'placement'\?"
run dlaunch help; expect_code 0; expect_out '^Topics:$'
for topic in '' workers placement output failure nodes general exit-codes environment macros --rdzv-conf --logs-specs \
  coming-from-{torchrun,accelerate,deepspeed,horovodrun,mpirun,mpiexec,srun}; do
  run dlaunch help $topic; expect_code 0
  awk 'length > 100 { exit 1 }' out || fail "help $topic is wider than 100 columns"
done
run dlaunch --nproc banana -h
expect_code 0
run dlaunch --version
expect_code 0
expect_out '^dlaunch [0-9]+\.[0-9]+\.[0-9]+$'

# On a slow machine the start of any program takes longer.
best_of_ten() {
  best=1000
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    run "$@"
    [ "$ms" -lt "$best" ] && best=$ms
  done
}
best_of_ten /bin/true; most=$((10 * best > 20 ? 10 * best : 20))
best_of_ten dlaunch --help
[ "$best" -le "$most" ] || fail "--help took $best ms, allowed $most"
echo "--help: $best ms"

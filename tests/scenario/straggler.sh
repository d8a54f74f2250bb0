# dlaunch names a worker that stays slower than the others once, with the evidence, and replaces it on
# request. If all workers are equally fast, it names none.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/rounds_worker
watch=(--straggler-window 300ms --straggler-ratio 1.5)

told_once() { [ "$(grep -c 'x the time of the others' err)" = 1 ]; }
# run_until_told CONDITION OPTIONS…: a busy machine may slow down all workers for the whole test, or another one, or rank 1
# only for a while.
run_until_told() {
  local enough=$1 try; shift
  for try in 1 2 3 4 5; do
    run dlaunch --nproc 3 "${watch[@]}" "$@" "$worker" --steps 800 --step-ms 4 --slow 1
    grep -q 'rank 1 takes' err && $enough && return
  done
}

run_until_told told_once
expect_code 0; expect_err 'rank 1 takes [0-9.]+x the time of the others between collectives'
told_once || fail "said more than once, or of somebody else"

run dlaunch --nproc 3 "${watch[@]}" --straggler off "$worker" --steps 100 --step-ms 4 --slow 1
expect_code 0; [ ! -s err ] || fail "--straggler off does not keep quiet: $(cat err)"

stayed() {
  [ "$(grep -c '^\[0\] in round' out)" = 2 ] && [ "$(grep -o '^\[0\] in round .* pid [0-9]*' out | grep -o 'pid [0-9]*' | sort -u | wc -l)" = 1 ]
}
replaced() { grep -q '^\[1\] in round 2 as 1 of 3' out && stayed; }
run_until_told replaced --straggler restart --max-restarts 1
expect_code 0; expect_err 'rank 1 takes'; expect_out '^\[1\] in round 2 as 1 of 3'
stayed || fail "rank 0 did not stay: $(cat out)"

# --verify: a bit flips in one rank, and the job finds it. The rank is named and replaced, the step is done
# again, and the result is that of one undisturbed process, bit for bit. FLIP: tests/support/flip.cc.
source "$SOURCE/tests/scenario/common.sh"
worker=("$BUILD/tests/support/elastic_worker" --steps 40 --size 200000 --trusts-sums 1 --log log)
flips=$BUILD/tests/support/libdlring_flips.so

run "${worker[@]}"; expect_code 0
result=$(grep -o 'step 40, result [0-9a-f]*' out) || fail "no result"
# flip RANK POINT TIME ARGS…: a job with this flip.
flip() {
  rm -f log
  local where="$1 $2 $3"; shift 3
  run dlaunch -x FLIP="$where" -x LD_PRELOAD="$flips" "$@" "${worker[@]}" --steps "${steps:-40}"
}
expect_result() { [ "$(grep -c "of $1: $result" out)" = "$1" ] || fail "not the result of one process, $1 times"; }
# The process of this rank in the last round, and whether it was there in round 1.
kept() { grep -q "^round 1 rank $1 .* $(grep "^round [2-9] rank $1 " log | tail -n 1 | grep -o 'pid [0-9]*') " log; }

# Without --verify the flip is found by chance, or not at all.
flip 1 shm.taken_data 200 --nproc 3 --max-restarts 0
[ "$code" != 0 ] || ! [ "$(grep -c "of 3: $result" out)" = 3 ] || fail "nothing was flipped"

# What only this rank holds: every mode that looks at all bytes names it, and it alone is replaced.
flip 1 shm.taken_data 200 --nproc 3 --max-restarts 3 --verify results
expect_code 0; expect_result 3
expect_err 'rank 1 on host .* had corrupt data: all_reduce #[0-9]+: rank 1 \(pid [0-9]+ on [^)]*\) holds other results'
kept 0 && kept 2 || { cat log; fail "ranks 0 and 2 should have kept their processes"; }
! kept 1 || { cat log; fail "rank 1 should have been replaced"; }

# A wrong sum that all ranks agree on.
flip 2 verified.reduced_data 20 --nproc 3 --max-restarts 3 --verify full --transport tcp
expect_code 0; expect_result 3
expect_err 'rank 2 on host .* had corrupt data'
! kept 2 || { cat log; fail "rank 2 should have been replaced"; }

# Two ranks cannot tell which of them is wrong: both do the step again.
flip 1 shm.taken_data 200 --nproc 2 --max-restarts 3 --verify results
expect_code 0; expect_result 2
expect_err 'ranks 0-1 hold different results'
kept 0 && kept 1 || { cat log; fail "both should have kept their processes"; }

# Each such round costs a restart, also where both make commits in between.
flip 1 shm.taken_data 200+ --nproc 2 --max-restarts 2 --verify results
expect_code 76
expect_err 'the ranks had different results: .*ranks 0-1 hold different results'

# A job that may not go on ends with a code of its own, and the report says why.
flip 1 shm.taken_data 200 --nproc 3 --max-restarts 0 --verify results --error-file error.json
expect_code 76
expect_err 'rank 1 \(.*\) had corrupt data \(all_reduce #'
grep -q '"corrupt": "all_reduce #' error.json || { cat error.json; fail "the error file does not say so"; }

# Nor does it go on if that rank then exits with 0.
flip 1 shm.taken_data 200 --nproc 3 --max-restarts 0 --verify results sh -c '"$@"; exit 0' sh
expect_code 76
expect_err 'rank 1 on host .* had corrupt data: all_reduce #'

# A broken processor is found by samples, too.
steps=1000 flip 0 shm.taken_data 200+ --nproc 3 --max-restarts 0 --verify sample
expect_code 76
expect_err 'rank 0 \(.*\) had corrupt data \(all_reduce #'

run dlaunch --nproc 2 --verify often true; expect_code 64
expect_err "'often' is not one of off, sample, results, full"

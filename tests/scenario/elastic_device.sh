# The state of an elastic program on GPUs, with imitations of CUDA and NCCL. A new worker gets the state of a
# lost worker onto its GPU, and from another GPU if NCCL connects them. Memory that survivors have changed
# returns to the commit.
source "$SOURCE/tests/scenario/common.sh"
worker=$BUILD/tests/support/elastic_device_worker
[ -x "$worker" ] || skip "built without the headers of CUDA and NCCL"
# Tests never run on a real driver, even if LD_LIBRARY_PATH names one.
fakes=$BUILD/tests/support/fake_gpu
mkdir driver && cp "$fakes"/lib{cuda.so.1,nccl.so.2,nvidia-ml.so.1} driver/ || fail "no imitations"
for program in "$worker" "$fakes/train_on_fake_gpu" "$BUILD"/tests/unit/device/unit_{device,device_hundred,gpu_test}; do
  [ -x "$program" ] || continue
  LD_LIBRARY_PATH=$tmp/driver ldd "$program" >libraries || fail "ldd $program"
  grep -q 'fake_gpu/libcuda\.so\.1 ' libraries && ! grep -q "=> $tmp/driver/" libraries ||
    { cat libraries; fail "$program takes a driver of LD_LIBRARY_PATH"; }
done
export LD_LIBRARY_PATH=$fakes:$LD_LIBRARY_PATH
# all_right N FROM: N ranks ended with the right result, and the later round continued from step FROM.
all_right() {
  expect_code 0
  [ "$(grep -c "of $1: step 12 right" out)" = "$1" ] || { cat out err; fail "not $1 ranks that are right"; }
  [ $# = 1 ] || [ "$(grep -Ec "round [2-9] rank . of $1: from step $2," out)" = "$1" ] || { cat out; fail "not on from step $2"; }
}
# by_nccl ROUNDS RANKS N BYTES: in the sync of such a round, N of these ranks received BYTES by NCCL's
# broadcasts.
by_nccl() {
  local told; told=$(grep -Ec "round $1 rank [$2] of .: from step [0-9]+, $4 by NCCL" out)
  [ "$told" = "$3" ] || { cat out err; fail "not $4 bytes by NCCL to $3 of the ranks $2 in round $1"; }
}
later='[2-9]' state=4800001  # the state, and one byte by which the ranks test NCCL

run dlaunch --nproc 3 --max-restarts 1 "$worker" --die-at 7:1; all_right 3 '[67]'
by_nccl 1 12 2 $state; by_nccl $later 1 1 $state; by_nccl $later 02 1 $state; by_nccl $later 02 1 0
run dlaunch --nproc 3 --max-restarts 1 "$worker" --die-at 7:0; all_right 3 '[67]'
by_nccl $later 0 1 $state; by_nccl $later 12 1 $state; by_nccl $later 12 1 0
run dlaunch --nproc 3 --max-restarts 1 "$worker" --die-at 7:0 --share-gpu 1; all_right 3 '[67]'
by_nccl $later 012 3 0
run dlaunch --nproc 2 --max-restarts 1 "$worker" --die-at 7:1 --in-place 1; all_right 2 7
by_nccl $later 1 1 $state
# Calls return before they are done. If one fails in the stream, its result is never committed.
for options in '' '--share-gpu 1' '--in-place 1'; do
  run dlaunch --nproc 2 --max-restarts 1 "$worker" --ordered 1 --die-at 7:1 $options; all_right 2 '[67]'
done
for options in '' '--in-place 1'; do
  run env FAKE_NCCL=1:5:wedge DLAUNCH_OP_TIMEOUT=4 dlaunch --nproc 2 "$worker" --ordered 1 $options; all_right 2
done

# A second rank dies while a rank sends the state: first the sender, then another rank. Neither has the shard of
# the first lost rank. The additional byte is from the round that was lost.
for dead in "2 0" "3 1"; do
  first=${dead% *} second=${dead#* }
  run dlaunch --nproc 4 --max-restarts 2 "$worker" --die-at "7:$first" --die-given "$second"
  all_right 4 '[67]'
  [ "$(grep -c 'failed first: killed by SIGKILL' err)" = 2 ] || { cat err; fail "not two who died"; }
  by_nccl $later "$first" 1 $((state + 1)); by_nccl $later "$second" 1 $state
  by_nccl $later 0123 3 "($state|$((state + 1)))"
done

# All ranks end: the next job begins with the snapshot.
run dlaunch --nproc 2 "$worker" --snapshot kept --steps 8; expect_code 0
run dlaunch --nproc 2 "$worker" --snapshot kept; all_right 2
[ "$(grep -c 'of 2: from step 8,' out)" = 2 ] || { cat out; fail "not begun with the snapshot"; }

# NCCL hangs in each round, at its first operation: no round reaches a commit.
run env FAKE_NCCL=1:0:wedge DLAUNCH_OP_TIMEOUT=4 dlaunch --nproc 2 --max-restarts 2 --error-file report.json "$worker"
expect_code 69
expect_err 'dlaunch: the workers gave up a round, though none was lost: broadcast #[0-9]+ hangs on the GPUs: .* ncclBroadcast has not ended'
expect_err 'no restart: all 2 restarts \(--max-restarts\) are used'
grep -q '"end": "given_up"' report.json || { cat report.json; fail "the report has no such end"; }
grep -q 'from step' out && { cat out; fail "somebody got on"; }
# NCCL hangs later in each round: every round reaches a commit, so none counts for --max-restarts.
run env FAKE_NCCL=1:5:wedge DLAUNCH_OP_TIMEOUT=4 dlaunch --nproc 2 "$worker"; all_right 2
[ "$(grep -c 'from step' out)" = 6 ] || { cat out; fail "not three rounds"; }

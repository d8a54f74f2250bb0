# An elastic training continues when workers are killed. The others keep their process, no committed
# step is lost, and the model equals that of an undisturbed run, bit for bit.
source "$SOURCE/tests/scenario/common.sh"
train=$BUILD/examples/train_fashion_mnist
[ -x "$train" ] || skip "Eigen or zlib is not installed"
[ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"

args=(--epochs 6 --batch 128 --limit 20000)
run dlaunch --nproc 3 "$train" "${args[@]}" --model quiet --losses losses.quiet; expect_code 0
# Workers die repeatedly, with a spare and without. On a slow machine they die as often in each epoch.
kill_every=$((ms / 4 > 1500 ? ms / 4 : 1500))ms
for spares in 1 0; do
  run dlaunch --nproc 3 --spares $spares --max-restarts 100 --chaos kill=$kill_every,seed=$((spares + 3)) \
    "$train" "${args[@]}" --model chaos.$spares --losses losses.$spares
  expect_code 0; expect_err 'chaos sent it SIGKILL'; expect_err 'round [0-9]+: 3 workers after'
  expect_err "$([ $spares = 0 ] || echo 'a spare takes its place|')starting it again"  # a spare may come late
  cmp quiet chaos.$spares || fail "the model differs from that of the undisturbed run"
  cmp losses.quiet losses.$spares || fail "the losses differ from those of the undisturbed run"
done

# Workers that do not die keep their process.
for attempt in 1 2 3; do
  rm -f pid.* out
  dlaunch --nproc 3 --max-restarts 5 bash -c 'echo $$ >> pid.$RANK; exec "$0" "$@"' "$train" "${args[@]}" --model killed >out 2>err & job=$!
  started+=("$job")
  wait_until grep -q 'epoch 1' out || fail "no first epoch: $(cat err)"
  kill -9 "$(cat pid.1)" 2>/dev/null && break
  wait "$job"  # the job ended before the kill: try again
done
wait "$job"; code=$?; expect_code 0
cmp quiet killed || fail "the model differs after one kill"
[ "$(cat pid.0 pid.2 | wc -l)" = 2 ] && [ "$(wc -l < pid.1)" = 2 ] || fail "not only rank 1 was started again"

# All workers end: a new job resumes from the snapshots, also if the newest file is torn.
run dlaunch --nproc 3 "$train" "${args[@]}" --snapshots snaps --snapshot-every 20 --losses losses.whole; expect_code 0
newest=$(ls -t snaps/* | head -1); truncate -s 1000 "$newest"
run dlaunch --nproc 3 "$train" "${args[@]}" --snapshots snaps --snapshot-every 20 --model resumed
expect_code 0; expect_err "$(basename "$newest")"
cmp quiet resumed || fail "the model differs after resuming from a snapshot"

# Images that an earlier job has trained do not count for the speed: here all of them.
for speed in '[1-9][0-9]*' 0; do
  run dlaunch --nproc 2 "$train" --epochs 1 --batch 128 --limit 256 --snapshots end --snapshot-every 2
  expect_code 0; expect_out "epoch 1 .* $speed images/s"
done

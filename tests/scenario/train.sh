# Training: the loss curve does not depend on the number of workers, two runs are equal to the bit,
# rank 0 alone writes the model, and a lost worker ends the job naming it.
source "$SOURCE/tests/scenario/common.sh"
train=$BUILD/examples/train_fashion_mnist
[ -x "$train" ] || skip "Eigen or zlib is not installed"
[ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"

# same_curve STEPS A B: equal to the last digit but one of those printed.
same_curve() {
  paste "$2" "$3" |
    awk -v steps="$1" '{ d = $2 - $4; if (d > 1e-5 || d < -1e-5) bad++ } END { exit bad > 0 || NR != steps }'
}
for n in 1 2 4; do
  for again in a b; do
    run dlaunch --nproc $n "$train" --epochs 2 --batch 128 --limit 8000 --losses losses.$n.$again --model model.$n.$again
    expect_code 0
  done
  cmp losses.$n.a losses.$n.b || fail "two runs with $n workers differ in their losses"
  cmp model.$n.a model.$n.b || fail "two runs with $n workers differ in their models"
done
for n in 2 4; do
  same_curve 126 losses.1.a losses.$n.a || fail "the loss curves of 1 and $n workers part"
done

# Shares that differ in size weigh as much as their images, also where a rank has none.
for n in 1 3 9; do
  run dlaunch --nproc $n "$train" --epochs 1 --batch 100 --limit 1005 --losses losses.$n
  expect_code 0
done
for n in 3 9; do
  same_curve 11 losses.1 losses.$n || fail "the loss curves of 1 and $n workers part with uneven shares"
done
[ "$(stat -c %s model.4.a)" = 407080 ] || fail "the model has the wrong size"
[ -z "$(ls model.*.new 2>/dev/null)" ] || fail "a temporary model was left"

run "$train" --limit abc; expect_code 64; expect_err "'abc'"
run "$train" --limit 128 --losses /no/such/folder/x; expect_code 1; expect_err 'cannot write the losses'
run "$train" --limit 128 --epochs 1 --model /no/such/folder/x; expect_code 1; expect_err 'cannot write the model'
run dlaunch --nproc 2 "$train" --data /no/such/folder
expect_code 1; expect_err 'dataset-fashion-mnist'
run dlaunch --nproc 3 bash -c '[ $RANK = 1 ] && { "$0" --epochs 50 & until [ -e kill ]; do read -rt 0.01 <> <(:); done; kill -9 $!; kill -9 $$; }; [ $RANK = 0 ] && { "$0" --epochs 50 | while read -r line; do touch kill; done; exit ${PIPESTATUS[0]}; }; exec "$0" --epochs 50' "$train"
expect_code 137; expect_err 'rank 1 .* failed first: killed by SIGKILL'

# The same training on 4 hosts with 2 workers each, started in every way, gives the same weights.
source "$SOURCE/tests/hosts/pods.sh" || exit 1
for part in jobs sshd slurm etcd; do source "$SOURCE/tests/hosts/$part.sh" || exit 1; done
train=$BUILD/examples/train_fashion_mnist
[ -x "$train" ] || skip "Eigen or zlib is not installed"
[ -d /usr/share/datasets/fashion-mnist ] || skip "dataset-fashion-mnist is not installed"
hosts_up 4
export HOME=$tmp/home; mkdir -p "$HOME"
training=("$train" --epochs 1 --batch 128 --limit 3000)
same_weights() { # WAY
  [ -n "$ways" ] || cp "model.$1" model
  cmp "model.$1" model || fail "other weights by $1"
  ways+=" $1"
}
by_hand() { # WAY URL
  rdzv=(--rdzv "$2" --secret-file "$PWD/secret" --job-id "$1")
  start_job "4 2 1 3" --nnodes 4 --nproc 2 "${training[@]}" --model "model.$1"
  wait_job 150 0; same_weights "$1"
}
right() { grep -ohE 'epoch 1 .* accuracy [0-9.]+' out.* | sed 's/.*accuracy //' | sort -n | tail -n 1; }
ways=
by_hand tcp tcp://host1:29400
exact=$(right)
[ -n "$exact" ] || fail "no accuracy in the output"
# With a wire codec that rounds gradients, the weights differ but are as good.
for codec in bf16 int8; do
  export DLAUNCH_WIRE_CODEC=$codec
  rdzv=(--rdzv tcp://host1:29400 --secret-file "$PWD/secret" --job-id $codec)
  start_job "4 2 1 3" --nnodes 4 --nproc 2 "${training[@]}" --model model.$codec
  wait_job 150 0
  unset DLAUNCH_WIRE_CODEC
  [ -s model.$codec ] || fail "$codec: no model"
  cmp -s model model.$codec && fail "$codec: the weights are those without it"
  awk -v exact="$exact" -v now="$(right)" 'BEGIN { exit !(now > exact - 0.03) }' ||
    fail "$codec: accuracy $(right), $exact without it"
done
by_hand file "file://$PWD/meet"
etcd_up 3; by_hand etcd "$etcd_url"; etcd_kill
sshd_up 1 2 3 4
launch 1 --hosts 'host[1-4]:2' "${training[@]}" --model model.ssh; expect_code 0; same_weights ssh
launch 1 --tls --hosts 'host[1-4]:2' "${training[@]}" --model model.tls
expect_code 0; same_weights tls
slurm_up 1 2 3 4
run on 1 srun -N4 --ntasks-per-node=1 dlaunch --nproc 2 "${training[@]}" --model model.srun
expect_code 0; same_weights srun
run on 1 salloc -Q -N4 dlaunch --nproc 2 "${training[@]}" --model model.salloc
expect_code 0; same_weights salloc

for i in 0 1 2 3; do pod $i $((i + 1)); done
for h in 2 3 4; do knows $h 0 "$(host_addr 1)"; done
emit --nnodes 4 "${training[@]}" --model model.kubernetes
for i in 3 2 1 0; do start_pod $i $((i + 1)); done
for i in 0 1 2 3; do end_pod $i; done
same_weights kubernetes
echo "the same weights by:$ways"

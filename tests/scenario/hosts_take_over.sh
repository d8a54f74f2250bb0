# Hosts elect their leader, and the leader's host is lost. Another host takes over, the workers keep their
# processes, and the job completes.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 4
rounds=$BUILD/tests/support/rounds_worker
rdzv=(--secret-file "$PWD/secret" --job-id test)
pids_of() { grep -o 'pid .*' "out.$1" | sort -u; }
leader_of() { cat "$@" | grep -oE '10\.77\.0\.[0-9]+:[0-9]+' | tail -1 | sed -E 's/.*\.([0-9]+):.*/\1/'; }
kill_host() { host_kill "$1"; wait "${job[$1]}"; unset "job[$1]"; }
same_processes() {
  local h; for h in "$@"; do
    [ "$(pids_of "$h" | wc -l)" = 1 ] || job_fails "workers of host $h were started again"
  done
}

# With a folder: the leader's host is lost, and then the host that took over. The first host comes back between.
by_file=(--rdzv "file://$PWD/meet" --nnodes 2:3 --nproc 1 --max-restarts 5 "$rounds" --until enough --step-ms 10)
start_job "1 2 3" "${by_file[@]}"
wait_until later_round 0 3 || job_fails "no first round"
first=$(leader_of meet/dlaunch-leader-test)
t0=$(now_ms); kill_host "$first"
wait_until later_round 1 2 || job_fails "no second round of two hosts"
echo "folder: next round of the others after $(($(now_ms) - t0)) ms"
second=$(leader_of meet/dlaunch-leader-test)
[ "$second" != "$first" ] || job_fails "the lost host leads"
start_dlaunch "$first" "${by_file[@]}"
wait_until later_round 2 3 || job_fails "the lost host did not come back"
before=$(last_round); kill_host "$second"
wait_until later_round "$before" 2 || job_fails "no round without the second host"
end_steps 60 2
third=$((6 - first - second))
same_processes $third
[ -z "$(ls meet)" ] || job_fails "left in the folder: $(ls meet)"
for h in $first $third; do nothing_left $h; done

# A program that is not elastic is started again, and the restarts of both leaders count.
start_job "1 2 3" --rdzv "file://$PWD/meet" --nnodes 2:3 --max-restarts 1 bash -c \
  'echo rank $RANK of $WORLD_SIZE; [ $WORLD_SIZE = 3 ] || exit 9; exec sleep 100'
wait_until eval '[ "$(cat out.* | grep -c "of 3$")" = 3 ]' || job_fails "no start"
kill_host "$(leader_of meet/dlaunch-leader-test)"
wait_job 60 9
[ "$(cat out.* | grep -c "of 2$")" -ge 1 ] || job_fails "not started again"

# The files of a job whose hosts all died do not delay the next job with its name.
start_job "1 2" --rdzv "file://$PWD/meet" --nnodes 2 sleep 100
wait_until grep -qs . meet/dlaunch-journal-test || job_fails "no journal"
for h in 1 2; do kill_host $h; done
start_job "1 2" --rdzv "file://$PWD/meet" --nnodes 2 --nproc 2 true; wait_job 30 0
[ -z "$(ls meet)" ] || job_fails "left in the folder: $(ls meet)"

# With etcd: etcd is killed and restarted, and then the leader's host is killed.
source "$SOURCE/tests/hosts/etcd.sh"
etcd_up 4
start_job "1 2 3" --rdzv "$etcd_url" --nnodes 2:3 --nproc 2 --max-restarts 5 "$rounds" --until enough --step-ms 10
wait_until later_round 0 6 || job_fails "no first round"
key() { printf %s "$1" | base64; }
etcd_get() {
  on 4 curl -s -d "{\"key\":\"$(key "/test/test/$1")\"}" http://host4:2379/v3/kv/range |
    sed -nE 's/.*"value":"([^"]*)".*/\1/p' | base64 -d
}
first=$(etcd_get leader | leader_of -)
etcd_kill; read -rt 1 <> <(:); etcd_up 4
wait_until eval '[ -n "$(etcd_get leader)" ]' || job_fails "etcd lost the leader"
t0=$(now_ms); kill_host "$first"
wait_until later_round 1 4 || job_fails "no second round of two hosts"
echo "etcd: next round of the others after $(($(now_ms) - t0)) ms"
end_steps 60 4
for h in "${!job[@]}"; do [ "$(pids_of $h | wc -l)" = 2 ] || job_fails "workers of host $h were started again"; done

# A training whose leader's host is killed and comes back has the model of an undisturbed training, bit
# for bit.
[ -x "$BUILD/examples/train_fashion_mnist" ] && [ -d /usr/share/datasets/fashion-mnist ] || exit 0
training=(--rdzv "$etcd_url" --nnodes 2 --nproc 2 --max-restarts 5
  train_fashion_mnist --epochs 12 --batch 128 --limit 6000 --model)
start_job "1 2" "${training[@]}" quiet; wait_job 120 0
start_job "1 2" "${training[@]}" lost
wait_until grep -q 'epoch 1' out.1 out.2 || job_fails "no first epoch"
first=$(etcd_get leader | leader_of -)
kill_host "$first"
start_dlaunch "$first" "${training[@]}" lost
wait_job 150 0
cmp quiet lost || job_fails "the model differs from that of the undisturbed run"

# A job on several hosts loses a whole host: the host is killed or cut off, or it is the leader's. The others
# continue without the host or wait for it, and it comes back.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
hosts_up 4
rounds=$BUILD/tests/support/rounds_worker
pids_of() { grep -o 'pid .*' "out.$1" | sort -u; }
job=()

# Host 3 is killed. Its connection ends at once, three of four hosts continue, and the fourth comes back.
command=(--nnodes 3:4 --nproc 2 --max-restarts 9 --host-timeout 12s "$rounds" --until enough --step-ms 10)
start_job "1 2 3 4" "${command[@]}"
wait_until later_round 0 8 || job_fails "no first round"
for try in 1 2 3; do  # a busy machine may be slow once, but not three times
  before=$(last_round)
  t0=$(now_ms); host_kill 3
  wait_until later_round "$before" 6 || job_fails "no next round of three hosts"
  ms=$(($(now_ms) - t0)); echo "host killed: others in the next round after $ms ms"
  wait "${job[3]}"; unset 'job[3]'
  start_dlaunch 3 "${command[@]}"
  wait_until later_round $((before + 1)) 8 || job_fails "the host did not come back into the job"
  [ $ms -ge 8000 ] || break
done
[ $ms -lt 8000 ] || job_fails "too late: as if it were known by its silence"
end_steps 60 8
for h in 1 2 4; do [ "$(pids_of $h | wc -l)" = 2 ] || job_fails "workers of host $h were started again"; done

# Host 2 is cut off. It is lost after --host-timeout, and the number of the next round fences it. When the
# link is healed, the host comes back with new processes.
start_job "1 2 3" --nnodes 2:3 --nproc 1 --max-restarts 5 "$rounds" --until enough --step-ms 10
wait_until later_round 0 3 || job_fails "no first round"
t0=$(now_ms); link_cut 2 drop
wait_until later_round 1 2 || job_fails "no second round of two hosts"
echo "host cut off: others in the next round after $(($(now_ms) - t0)) ms"
[ $(($(now_ms) - t0)) -lt 20000 ] || job_fails "too late"
wait_until grep -q "this host's workers stay" err.2 || job_fails "the lost host does not notice"
link_heal 2
wait_until later_round 2 3 || job_fails "the host did not come back"
grep -q 'the job went on without this host' err.2 && [ "$(pids_of 2 | wc -l)" = 2 ] ||
  job_fails "its old workers are in the job"
end_steps 60 3

# Host 2 is cut off for longer than the default of --host-timeout. With a longer --host-timeout no host is lost,
# and the ranks, which have an operation under way, wait.
start_job "1 2" --nnodes 2 --nproc 1 --host-timeout 15s "$rounds" --until enough --step-ms 10
wait_until later_round 0 2 || job_fails "no first round"
link_cut 2 drop; sleep 6; link_heal 2
end_steps 60 2
! grep -q 'lost host\|lost the leading' err.1 err.2 && ! grep -q 'in round 2' out.1 || job_fails "something was lost in a cut of 6 s"

# If the job needs all hosts, it waits for the lost host.
command=(--nnodes 2 --nproc 2 --max-restarts 5 "$rounds" --until enough --step-ms 10)
start_job "1 2" "${command[@]}"
wait_until later_round 0 4 || job_fails "no first round"
host_kill 2; wait "${job[2]}"; unset 'job[2]'
wait_until 30 grep -q 'lost host host2' err.1 || job_fails "nobody says what was lost"
start_dlaunch 2 "${command[@]}"
wait_until later_round 1 4 || job_fails "the host did not come back"
end_steps 60 4
[ "$(pids_of 1 | wc -l)" = 2 ] || job_fails "not the ranks that were lost"

# dlaunch does not interrupt a program that is not elastic for a late host, and starts no worker there
# without a rank. The host gets workers when all workers restart.
command=(--nnodes 1:2 --nproc 1 --max-restarts 1 bash -c 'echo "rank ${RANK-none} of $WORLD_SIZE"
  if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then until [ -e enough ]; do sleep 0.05; done; exit 1; fi')
start_job 1 "${command[@]}"
wait_until grep -q 'rank 0 of 1' out.1 || job_fails "it does not begin with one host"
start_dlaunch 2 "${command[@]}"
wait_until grep -q 'host host2 has joined' err.1 || job_fails "the late host did not come"
wait_until grep -q 'host host2 has no workers yet: they start when all workers restart' err.1 || job_fails "not told"
touch enough; wait_job 60 0
grep -q 'rank 0 of 2' out.1 && grep -q 'rank 1 of 2' out.2 || job_fails "not with both hosts"
! grep -q 'of 1\|none' out.2 || job_fails "it was started there before that"

# The lost host comes back and is not healthy. Both ends say so, and it gets no workers until the job ends.
command=(--nnodes 1:2 --nproc 1 --max-restarts 5 --health-check 'echo too hot; exit 1'
  "$rounds" --until enough --step-ms 10)
start_job "1 2" "${command[@]}"
wait_until later_round 0 2 || job_fails "no first round"
host_kill 2; wait "${job[2]}"; unset 'job[2]'
start_dlaunch 2 "${command[@]}"
for told in "1 host host2" "2 this host"; do
  wait_until grep -q "${told#* } failed its health check and gets no workers: --health-check: too hot; dlaunch tests it again" \
    "err.${told%% *}" || job_fails "not told on host ${told%% *}"
done
end_steps 60 1
[ "$(pids_of 2 | wc -l)" = 1 ] || job_fails "it had workers all the same"
for h in 1 2; do nothing_left $h; done

# The leader is killed: all processes on all hosts end, within seconds.
start_job "1 2 3" --nnodes 3 --nproc 2 --join-timeout 10s "$rounds" --steps 100000 --step-ms 10
wait_until later_round 0 6 || job_fails "no first round"
host_kill 1; wait "${job[1]}"; unset 'job[1]'
wait_until 30 eval '[ "$(on 2 bash -c "cat /proc/[0-9]*/comm 2>/dev/null" | grep -c rounds_worker)" = 0 ]' ||
  job_fails "workers outlive their leader"
wait_job 60 69
for h in 2 3; do nothing_left $h; done

# A training that loses a host and gets it back has the model of an undisturbed training, bit for bit.
[ -x "$BUILD/examples/train_fashion_mnist" ] && [ -d /usr/share/datasets/fashion-mnist ] || exit 0
train() { # train MODEL: starts a training
  start_job "1 2" --nnodes 2 --nproc 2 --max-restarts 5 \
    train_fashion_mnist --epochs 8 --batch 128 --limit 12000 --model "$1"
}
train quiet; wait_job 120 0
train lost
wait_until grep -q 'epoch 1' out.1 || job_fails "no first epoch"
host_kill 2; wait "${job[2]}"; unset 'job[2]'
start_dlaunch 2 --nnodes 2 --nproc 2 --max-restarts 5 \
  train_fashion_mnist --epochs 8 --batch 128 --limit 12000 --model lost
wait_job 120 0
cmp quiet lost || job_fails "the model differs from that of the undisturbed run"

# Each worker gets a signal once. The exit code says which signal ended the job.
source "$SOURCE/tests/scenario/common.sh"

cat > worker.sh <<'W'
for s in INT TERM HUP QUIT USR1 USR2; do trap "echo got $s >> got.$RANK; [ $s = USR1 ] || [ $s = USR2 ] || exit 0" $s; done
touch ready.$RANK
while :; do sleep 0.05; done
W
ready() { [ -e ready.0 ] && [ -e ready.1 ]; }
launch() {
  rm -f ready.* got.*
  # These tests may run under nohup, and then dlaunch must ignore SIGHUP.
  env --default-signal=HUP dlaunch --nproc 2 "$@" bash worker.sh >out 2>err </dev/null & keeper=$!
  started+=("$keeper")
  wait_until ready || fail "workers did not start"
}
got() { [ "$(cat got.0 2>/dev/null)" = "got $1" ] && [ "$(cat got.1 2>/dev/null)" = "got $1" ]; }

for s in INT:130 TERM:143 HUP:129 QUIT:131; do
  launch
  kill -"${s%:*}" "$keeper"; wait "$keeper"; code=$?
  expect_code "${s#*:}"
  got "${s%:*}" || fail "workers got: $(cat got.*)"
  expect_err "ended by SIG${s%:*}"
done

# dlaunch passes USR1 and USR2 on, and they do not end the job.
launch
kill -USR1 "$keeper"; wait_until got USR1 || fail "USR1 did not arrive"
alive "$keeper" || fail "USR1 ended the job"
kill -TERM "$keeper"; wait "$keeper"

# TSTP stops workers and dlaunch, CONT wakes them.
launch
state() { sed 's/.*) //' "/proc/$1/stat" | cut -c1; }
agent=$(tr -d ' ' < "/proc/$keeper/task/$keeper/children")
worker=$(cut -d' ' -f1 "/proc/$agent/task/$agent/children")
kill -TSTP "$keeper"
wait_until eval '[ "$(state $keeper)" = T ] && [ "$(state $worker)" = T ]' || fail "not stopped"
kill -CONT "$keeper"
wait_until eval '[ "$(state $keeper)" != T ] && [ "$(state $worker)" != T ]' || fail "not continued"
# A second ^C kills at once, whatever --grace says. It counts as a second one from 0.1 s after the first.
cat > deaf.sh <<'W'
trap 'touch told.$RANK' INT
touch ready.$RANK
while :; do sleep 0.05; done
W
kill -INT "$keeper"; wait "$keeper"
rm -f ready.*
dlaunch --nproc 2 --grace 60s bash deaf.sh >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until ready || fail "workers did not start"
kill -INT "$keeper"
wait_until test -e told.0 || fail "the first ^C did not arrive"
t0=$(now_ms); wait_until 5 eval '[ $(($(now_ms) - t0)) -ge 300 ]'
kill -INT "$keeper"
t0=$(now_ms); wait "$keeper"; code=$?
expect_code 130
[ $(($(now_ms) - t0)) -le 30000 ] || fail "the second ^C took $(($(now_ms) - t0)) ms"

# A signal to the whole process group, as from a terminal or timeout(1): each worker still gets one signal.
rm -f ready.* got.*
setsid dlaunch --nproc 2 bash worker.sh >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until ready || fail "workers did not start"
kill -INT -- -"$keeper"; wait "$keeper"; code=$?
expect_code 130; got INT || fail "workers got: $(cat got.*)"

# timeout(1) signals its child and then the child's whole group. This counts as one signal, so the
# workers still have the time of --grace.
cat > slow.sh <<W
$never
trap 'read -rt 0.3 -u 9; echo clean; exit 0' TERM
touch ready.\$RANK
while :; do sleep 0.05; done
W
for i in 1 2 3 4 5; do
  rm -f ready.*
  timeout 1000 dlaunch --nproc 2 bash slow.sh >out 2>err </dev/null & outer=$!
  started+=("$outer")
  wait_until ready || fail "workers did not start"
  kill -TERM "$outer"; wait "$outer"
  [ "$(grep -c clean out)" = 2 ] || fail "timeout's signal counted twice: the workers were killed"
done

# dlaunch writes the end of the job to the journal first. A second signal does not wait for the journal.
mkfifo journal~
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
dlaunch --nnodes 1:2 --rdzv "tcp://127.0.0.1:$port" --job-id "held-$$" --max-restarts 1 --journal journal true >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until eval '"$BUILD/cli/ctl/dlaunchctl" status --job "held-$$" 2>/dev/null | grep -q "^forming"' || fail "the job does not wait for its journal"
kill -TERM "$keeper"
t0=$(now_ms); wait_until 5 eval '[ $(($(now_ms) - t0)) -ge 300 ]'
kill -TERM "$keeper"; wait "$keeper"; code=$?
expect_code 143; expect_err 'interrupted, while .* journal cannot be written'

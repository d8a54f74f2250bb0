# Signals reach the workers once; the exit code says which one ended the job.
source "$SOURCE/tests/scenario/common.sh"

cat > worker.sh <<'W'
for s in INT TERM HUP QUIT USR1 USR2; do trap "echo got $s >> got.$RANK; [ $s = USR1 ] || [ $s = USR2 ] || exit 0" $s; done
touch ready.$RANK
while :; do read -rt 0.05 <> <(:); done
W
ready() { [ -e ready.0 ] && [ -e ready.1 ]; }
launch() {
  rm -f ready.* got.*
  dlaunch --nproc 2 "$@" bash worker.sh >out 2>err </dev/null & keeper=$!
  started+=("$keeper")
  wait_until 10 ready || fail "workers did not start"
}
got() { [ "$(cat got.0 2>/dev/null)" = "got $1" ] && [ "$(cat got.1 2>/dev/null)" = "got $1" ]; }

for s in INT:130 TERM:143 HUP:129 QUIT:131; do
  launch
  kill -"${s%:*}" "$keeper"; wait "$keeper"; code=$?
  expect_code "${s#*:}"
  got "${s%:*}" || fail "workers got: $(cat got.*)"
  expect_err "ended by SIG${s%:*}"
done

# USR1 and USR2 pass through and end nothing.
launch
kill -USR1 "$keeper"; wait_until 5 got USR1 || fail "USR1 did not arrive"
alive "$keeper" || fail "USR1 ended the job"
kill -TERM "$keeper"; wait "$keeper"

# TSTP stops workers and dlaunch, CONT wakes them.
launch
state() { sed 's/.*) //' "/proc/$1/stat" | cut -c1; }
agent=$(tr -d ' ' < "/proc/$keeper/task/$keeper/children")
worker=$(cut -d' ' -f1 "/proc/$agent/task/$agent/children")
kill -TSTP "$keeper"
wait_until 5 eval '[ "$(state $keeper)" = T ] && [ "$(state $worker)" = T ]' || fail "not stopped"
kill -CONT "$keeper"
wait_until 5 eval '[ "$(state $keeper)" != T ] && [ "$(state $worker)" != T ]' || fail "not continued"
# A second ^C kills at once, whatever the grace.
kill -STOP "$worker"  # it will not answer
kill -INT "$keeper"; kill -INT "$keeper"
t0=$(now_ms); wait "$keeper"; code=$?
expect_code 130
[ $(($(now_ms) - t0)) -le 1500 ] || fail "the second ^C took $(($(now_ms) - t0)) ms"

# The whole process group at once, as a terminal or timeout(1) do: still one signal each.
rm -f ready.* got.*
setsid dlaunch --nproc 2 bash worker.sh >out 2>err </dev/null & keeper=$!
started+=("$keeper")
wait_until 10 ready || fail "workers did not start"
kill -INT -- -"$keeper"; wait "$keeper"; code=$?
expect_code 130; got INT || fail "workers got: $(cat got.*)"

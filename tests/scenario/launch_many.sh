# 256 workers: started, reaped, small. Idle: no CPU.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 256 --oversubscribe /bin/true
expect_code 0; expect_under 5000

dlaunch --nproc 256 --oversubscribe sleep 1000 >out 2>err </dev/null & keeper=$!
started+=("$keeper")
agent() { cat "/proc/$keeper/task/$keeper/children" 2>/dev/null; }
all_up() { [ "$(wc -w < "/proc/$1/task/$1/children")" = 256 ]; }
wait_until 5 eval '[ -n "$(agent)" ]'; agent=$(agent | tr -d ' ')
wait_until 10 all_up "$agent" || fail "workers did not start"
# Shared pages counted once.
pss() { awk '/^Pss:/ {s += $2} END {print s}' "/proc/$1/smaps_rollup"; }
rss=$(awk '/VmRSS/ {print $2}' "/proc/$agent/status")
total=$(($(pss "$keeper") + $(pss "$agent")))
[ "$rss" -lt 30000 ] && [ "$total" -lt 30000 ] || fail "resident: agent $rss kB, both together $total kB"
# All 256 are there before the last of them is watched: what starting costs is not what idling costs.
ticks() { awk '{print $14 + $15}' "/proc/$agent/stat"; }
idle() { local before; before=$(ticks); read -rt 1.5 <> <(:) || :; cost=$(($(ticks) - before)); [ "$cost" -le 1 ]; }
wait_until 10 idle || fail "idle cost $cost ticks in 1.5 s"
kill -TERM "$keeper"; wait "$keeper"; code=$?
expect_code 143

# Ranks that meet have three descriptors for each other one, whatever the soft limit is.
ulimit -Sn 64
run dlaunch --nproc 32 --oversubscribe --transport tcp "$BUILD/tests/support/rounds_worker" --steps 3
expect_code 0

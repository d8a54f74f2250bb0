# dlaunch starts and reaps 256 workers, needs little memory, and no CPU time while they are idle.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 256 --oversubscribe /bin/true
expect_code 0; expect_under 20000

dlaunch --nproc 256 --oversubscribe sleep 1000 >out 2>err </dev/null & keeper=$!
started+=("$keeper")
agent() { cat "/proc/$keeper/task/$keeper/children" 2>/dev/null; }
all_up() { [ "$(wc -w < "/proc/$1/task/$1/children")" = 256 ]; }
wait_until eval '[ -n "$(agent)" ]'; agent=$(agent | tr -d ' ')
wait_until all_up "$agent" || fail "workers did not start"
# Counts shared pages once.
pss() { awk '/^Pss:/ {s += $2} END {print s}' "/proc/$1/smaps_rollup"; }
rss=$(awk '/VmRSS/ {print $2}' "/proc/$agent/status")
total=$(($(pss "$keeper") + $(pss "$agent")))
[ "$rss" -lt 30000 ] && [ "$total" -lt 30000 ] || fail "resident: agent $rss kB, both together $total kB"
# Waits until all 256 workers run and dlaunch watches them, because the start does need CPU time.
ticks() { awk '{print $14 + $15}' "/proc/$agent/stat"; }
idle() { local before; before=$(ticks); read -rt 1.5 <> <(:) || :; cost=$(($(ticks) - before)); [ "$cost" -le 1 ]; }
wait_until idle || fail "idle cost $cost ticks in 1.5 s"
kill -TERM "$keeper"; wait "$keeper"; code=$?
expect_code 143

# 256 ranks of one host meet and reduce: each connects with some of them. This takes 1 s on 2 idle cores.
run dlaunch --nproc 256 --oversubscribe "$BUILD/tests/support/rounds_worker" --steps 3
expect_code 0; expect_under 60000
# A burst of deaths: each rank that is left names one of those killed.
run "$BUILD/tests/support/meeting_cost" 200 --deaths 20
cat out; expect_code 0; expect_under 60000
# Over sockets each rank has links and sockets with few others.
run "$BUILD/tests/support/meeting_cost" 256 --transport tcp --deaths 4 --most-descriptors 64
cat out; expect_code 0; expect_under 60000

# dl_init raises the soft limit: with at most 32 ranks each has a link with each other rank.
ulimit -Sn 64
run dlaunch --nproc 32 --oversubscribe --transport tcp "$BUILD/tests/support/rounds_worker" --steps 3
expect_code 0

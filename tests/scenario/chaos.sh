# --chaos spares all workers until each of them has begun its work. A worker of an elastic program begins when
# it joins a round; any other worker is spared in its first seconds.
source "$SOURCE/tests/scenario/common.sh"
rounds=$BUILD/tests/support/rounds_worker

# Each process takes two seconds to start, five times as long as the interval.
dlaunch --nproc 3 --max-restarts 1000 --chaos kill=400ms sh -c 'sleep 2; exec "$0" --until enough' "$rounds" >out 2>err </dev/null &
job=$!; started+=($job)
killed() { [ "$(grep -c 'failed first: --chaos sent it SIGKILL' err)" -ge "$1" ]; }
wait_until 100 killed 4 || fail "--chaos kills too rarely"
touch enough; wait "$job"; code=$?; expect_code 0
grep -E 'chaos sent it SIGKILL .*after ([01](\.[0-9]+)? s|[0-9.]+ ms)' err && fail "killed before it had joined"
expect_out 'in round [3-9]'

# For a worker that never joins only its age counts. The limit is lower if the worker has written output.
run dlaunch --nproc 2 --chaos kill=100ms sh -c 'echo up; exec sleep 1000'
expect_code 137; expect_err 'chaos sent it SIGKILL .*after 1[0-9]'

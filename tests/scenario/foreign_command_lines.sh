# Lines of torchrun, mpirun and horovodrun work as they are.
source "$SOURCE/tests/scenario/common.sh"
cat >train.py <<'PY'
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
PY
mkdir pkg && touch pkg/__init__.py && cp train.py pkg/train.py
export PYTHON_EXEC=/usr/bin/python3 A=from_here

# ranks N PATTERN COMMAND…: N workers printed the pattern, each with its rank.
ranks() {
  local count=$1 pattern=$2 rank; shift 2
  run "$@"
  expect_code 0
  for ((rank = 0; rank < count; rank++)); do expect_out "rank $rank of $count$pattern\$"; done
  [ "$(grep -c ' of ' out)" = "$count" ] || fail "not $count lines: $*"
}
ranks 2 ' --lr 1' dlaunch --nproc_per_node=2 --nnodes=1 --standalone train.py --lr 1
ranks 2 '' dlaunch --nproc-per-node 2 --nnodes 1:1 --rdzv-backend c10d --rdzv-endpoint localhost:0 \
  --rdzv-id 42 --max-restarts 0 --monitor-interval 5 train.py
ranks 2 ' x' dlaunch --nproc-per-node 2 --node_rank 0 --master_addr 127.0.0.1 -m pkg.train x
ranks 2 '' dlaunch --nproc-per-node 2 --no-python python3 train.py
ranks 3 '' dlaunch -np 3 --allow-run-as-root --oversubscribe --tag-output --bind-to none \
  python3 train.py
chmod +x train.py  # as a container's COPY or a mounted disk leaves it: it has no '#!' all the same
ranks 2 '' dlaunch --nproc-per-node 2 ./train.py
chmod -x train.py
echo 'localhost slots=2' >hosts
ranks 2 '' dlaunch -hostfile hosts -wdir . -x A -x B=2 python3 train.py
ranks 2 '' dlaunch -np 2 -machinefile hosts --timeout 60 python3 train.py
ranks 2 '' dlaunch -n 2 -ppn 2 -genv A 1 python3 train.py
ranks 2 '' dlaunch -np 2 -H localhost:2 --output-filename logs python3 train.py
[ -d logs ] || fail "no log folder"

run dlaunch -np 2 -wdir pkg -x A -x B=2=3 sh -c 'echo $A:$B in ${PWD##*/}'
expect_code 0
[ "$(grep -c 'from_here:2=3 in pkg$' out)" = 2 ] || fail "-x or -wdir did not reach the workers"

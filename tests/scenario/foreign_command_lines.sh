# Command lines of torchrun, mpirun and horovodrun work unchanged.
source "$SOURCE/tests/scenario/common.sh"
cat >train.py <<'PY'
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
PY
mkdir pkg && touch pkg/__init__.py && cp train.py pkg/train.py
export PYTHON_EXEC=/usr/bin/python3 A=from_here

# ranks N PATTERN COMMAND…: runs the command, whose N workers must print the pattern, each with its rank.
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
chmod +x train.py  # a container's COPY or a mounted disk may do so, although the file has no '#!'
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

# torchrun's further options.
ranks 2 '' dlaunch --nproc-per-node 2 --rdzv-conf join_timeout=60,last_call_timeout=5 --start-method spawn \
  --event-log-handler null --logs-specs default --signals-to-handle SIGTERM,SIGUSR1 --use-env \
  --local-addr 127.0.0.1 --role default --monitor-interval 1 train.py
run dlaunch --nproc 2 --role trainer --virtual-local-rank --output raw \
  sh -c 'echo $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE local $LOCAL_RANK sees $CUDA_VISIBLE_DEVICES'
expect_code 0; expect_out '^trainer 0/2 local 0 sees 0$'; expect_out '^trainer 1/2 local 0 sees 1$'
run dlaunch --nproc 2 --role t --log-line-prefix-template '[${role_name}${local_rank}]:${rank}> ' echo hi
expect_code 0; expect_out '^\[t0\]:0> hi$'; expect_out '^\[t1\]:1> hi$'
run dlaunch --nproc 2 --log-dir split -r 0:1,1:2 -t 1:2 sh -c 'echo out; echo err >&2'
expect_code 0; expect_out '^\[1\] out$'; expect_err '^\[1\] err$'; expect_err '^\[0\] err$'
grep -q '^\[0\] out' out && fail "-r 0:1 shows stdout of local rank 0"
grep -rqx out split || fail "-r: no log files"
cp train.py script_of_any_name
ranks 2 ' a b' dlaunch --nproc 2 --run-path "$PWD/script_of_any_name" a b

# accelerate, deepspeed, horovodrun, mpirun, mpiexec, srun.
ranks 2 '' dlaunch --num_processes 2 --num_machines 1 --mixed_precision no --main_process_port 0 train.py
run dlaunch --num_processes 1 --mixed_precision bf16 --dynamo_backend inductor --output raw printenv \
  ACCELERATE_MIXED_PRECISION ACCELERATE_DYNAMO_BACKEND
expect_code 0; expect_out '^bf16$'; expect_out '^INDUCTOR$'
ranks 2 '' dlaunch --num_gpus 2 --num_nodes 1 --no_local_rank --launcher pdsh train.py
run dlaunch --include localhost:1,3 --output raw printenv CUDA_VISIBLE_DEVICES
expect_code 0; [ "$(grep -c '^1,3$' out)" = 2 ] || fail "--include localhost:1,3: two workers expected"
run dlaunch -np 1 --timeline-filename t.json --fusion-threshold-mb 32 --cycle-time-ms 3.5 --autotune \
  --no-stall-check --output raw printenv HOROVOD_TIMELINE HOROVOD_FUSION_THRESHOLD HOROVOD_AUTOTUNE
expect_code 0; expect_out '^t.json$'; expect_out '^33554432$'; expect_out '^1$'
run dlaunch --check-build
expect_code 0; expect_out '^Available controllers:$'; expect_out '\[X\] shared memory'
ranks 2 '' dlaunch -np 2 --use-hwthread-cpus -iface lo --mca btl tcp,self --map-by ppr:2:node \
  --bind-to core:overload-allowed --rank-by slot python3 train.py
run dlaunch --mca btl tcp,self -genv A 1 -genv B=2 --output raw printenv OMPI_MCA_btl A B
expect_code 0; expect_out '^tcp,self$'; expect_out '^1$'; expect_out '^2$'
ranks 2 '' dlaunch -n 2 --ntasks-per-node=2 --kill-on-bad-exit=1 -u --mpi=none --export=ALL,Z=1 train.py
# With -v dlaunch reports each of them once; without -v it reports none.
run dlaunch -v --start-method spawn --pernode true
expect_code 0; expect_err "'--start-method' of torchrun is accepted: "; expect_err "'--pernode' of mpirun is taken as --nproc=1"
[ "$(grep -c start-method err)" = 1 ] || fail "told more than once"
run dlaunch --start-method spawn --pernode true
expect_code 0; [ ! -s err ] || fail "told without -v: $(cat err)"
run dlaunch -N 1 true
expect_code 0; expect_err "-N: 1 workers on each host, as mpirun means it; srun's -N is --nnodes"

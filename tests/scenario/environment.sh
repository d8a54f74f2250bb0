# Workers see torchrun's contract, no stale variables of an enclosing launcher, and expanded macros.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 8 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT'
expect_code 0
[ "$(sort -u out | wc -l)" = 8 ] || fail "eight different lines expected"
for r in 0 1 2 3 4 5 6 7; do expect_out "^\[$r\] $r/8 $r 127\.0\.0\.1:[0-9]+$"; done

PMI_RANK=9 PMIX_NAMESPACE=stale PMIX_UNIVERSE=9 OMPI_COMM_WORLD_RANK=9 SLURM_CPU_BIND=core SLURM_JOB_ID=5 \
  run dlaunch --nproc 2 --job-id abc -x EXTRA=of-'${rank}' --output raw sh -c 'env; echo ARG=$0' '${local_rank}of${world_size}'
expect_code 0
grep -qE '^(PMI_RANK=9|PMIX_NAMESPACE=stale|PMIX_UNIVERSE=|SLURM_CPU_BIND=)' out && fail "stale variables passed on"
for line in SLURM_JOB_ID=5 RANK=1 GROUP_RANK=0 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=abc \
  TORCHELASTIC_RESTART_COUNT=0 OMPI_COMM_WORLD_RANK=1 HOROVOD_SIZE=2 DLAUNCH_JOB_ID=abc \
  DLAUNCH_ROUND=1 PMI_RANK=0 PMI_RANK=1 PMI_SIZE=2 EXTRA=of-1 ARG=0of2 ARG=1of2; do
  grep -qxF "$line" out || fail "missing: $line"
done
# A macro gives the master's address to programs that read it from another variable, in each round.
run dlaunch --nproc 2 --max-restarts 1 -x JAX_COORDINATOR_ADDRESS='${master_addr}:${master_port}' sh -c '
  [ "$JAX_COORDINATOR_ADDRESS" = "$MASTER_ADDR:$MASTER_PORT" ] && [ "$0" = "$MASTER_PORT" ] || exit 3
  echo "round $DLAUNCH_ROUND at $JAX_COORDINATOR_ADDRESS"
  [ "$DLAUNCH_ROUND" = 2 ]' '${master_port}'
expect_code 0; expect_out '^\[0\] round 2 at 127\.0\.0\.1:[0-9]+$'; expect_out '^\[1\] round 2 at'
# The secret is in a private file, and not in the environment.
run dlaunch --nproc 1 --output raw sh -c 'stat -c %a "$DLAUNCH_SECRET_FILE"; cat "$DLAUNCH_SECRET_FILE"; env'
[ "$(head -n1 out)" = 600 ] || fail "mode of the secret file"
secret=$(sed -n 2p out); secret=${secret:0:64}
[ "$(grep -c "$secret" out)" = 1 ] || fail "the secret is in the environment"

# libdlring explains itself on rank 0 alone, once for each kind and size.
DLAUNCH_DEBUG=explain run dlaunch --nproc 2 --output raw dlaunch-bench all_reduce -b 1M -e 1M -n 3
expect_code 0; expect_err 'all_reduce of 262144 float: shm: .*[0-9]+ blocks'
[ "$(grep -c 'of 262144 float' err)" = 1 ] || fail "explained more than once: $(cat err)"

# DLAUNCH_PLAN changes how calls go over sockets; --plan and explain show it. Nonsense ends the job.
DLAUNCH_PLAN='all_reduce:1M-:ring,granule=128K,window=2;broadcast::chain' run dlaunch --nproc 3 --transport tcp \
  --output raw dlaunch-bench all_reduce -b 512K -e 2M --plan
expect_code 0; expect_out ' 1048576 .*ring, granules of 128 KiB, 2 ahead \(DLAUNCH_PLAN\)'
expect_out ' 524288 .*owner of each slice, granules of [0-9]+ KiB, [0-9]+ ahead$'
DLAUNCH_PLAN='all_reduce::ring,granule=4K,window=1;all_gather::ring;reduce_scatter::ring;reduce::direct;broadcast::chain' \
  DLAUNCH_TRANSPORT=tcp run dlaunch --nproc 3 "$BUILD/tests/support/random_ops" --seed 5 --ops 600 --any-order
expect_code 0; expect_out ' 0 wrong results'
DLAUNCH_PLAN='all_reduce:-64K:doubling' DLAUNCH_TRANSPORT=tcp \
  run dlaunch --nproc 5 "$BUILD/tests/support/random_ops" --seed 6 --ops 400
expect_code 0; expect_out ' 0 wrong results'
DLAUNCH_PLAN='broadcast:1M-:ring' run dlaunch --nproc 2 dlaunch-bench barrier
expect_code 1; expect_err "DLAUNCH_PLAN: 'broadcast:1M-:ring': 'ring' is no algorithm for it; there are: tree chain"
run dlaunch --nproc 2 sh -c 'DLAUNCH_PLAN="all::window=$((RANK + 1))" exec dlaunch-bench barrier'
expect_code 1; expect_err "rank 1 .* and rank 0 .* have different DLAUNCH_PLAN: 'all::window=2' and 'all::window=1'"

# Workers see torchrun's contract, no stale variables of an enclosing launcher, and expanded macros.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 8 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT'
expect_code 0
[ "$(sort -u out | wc -l)" = 8 ] || fail "eight different lines expected"
for r in 0 1 2 3 4 5 6 7; do expect_out "^\[$r\] $r/8 $r 127\.0\.0\.1:[0-9]+$"; done

PMI_RANK=9 PMIX_NAMESPACE=x OMPI_COMM_WORLD_RANK=9 SLURM_CPU_BIND=core SLURM_JOB_ID=5 \
  run dlaunch --nproc 2 --job-id abc -x EXTRA=of-'${rank}' --output raw sh -c 'env; echo ARG=$0' '${local_rank}of${world_size}'
expect_code 0
grep -qE '^(PMI_RANK|PMIX_NAMESPACE|SLURM_CPU_BIND)=' out && fail "stale variables passed on"
for line in SLURM_JOB_ID=5 RANK=1 GROUP_RANK=0 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=abc \
  TORCHELASTIC_RESTART_COUNT=0 OMPI_COMM_WORLD_RANK=1 HOROVOD_SIZE=2 DLAUNCH_JOB_ID=abc \
  DLAUNCH_ROUND=1 EXTRA=of-1 ARG=0of2 ARG=1of2; do
  grep -qxF "$line" out || fail "missing: $line"
done
# The secret is in a private file, and nowhere else.
run dlaunch --nproc 1 --output raw sh -c 'stat -c %a "$DLAUNCH_SECRET_FILE"; cat "$DLAUNCH_SECRET_FILE"; env'
[ "$(head -n1 out)" = 600 ] || fail "mode of the secret file"
secret=$(sed -n 2p out); secret=${secret:0:64}
[ "$(grep -c "$secret" out)" = 1 ] || fail "the secret is in the environment"

# libdlring explains itself on rank 0 alone, once for each kind and size.
DLAUNCH_DEBUG=explain run dlaunch --nproc 2 --output raw dlaunch-bench all_reduce -b 1M -e 1M -n 3
expect_code 0; expect_err 'all_reduce of 262144 float: shm: .*[0-9]+ blocks'
[ "$(grep -c 'of 262144 float' err)" = 1 ] || fail "explained more than once: $(cat err)"

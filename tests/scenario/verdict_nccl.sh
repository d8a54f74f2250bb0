# A watchdog ends ranks that wait for NCCL, with the imitation of NCCL: the report names the rank that does not come.
source "$SOURCE/tests/scenario/verdict.sh"
program=$BUILD/tests/support/nccl_stuck
[ -x "$program" ] || skip "it was not built: it needs CUDA's headers"
CULPRIT=9 run dlaunch --nproc 4 "$program"; expect_code 0
for kind in $kinds; do BEFORE="rm -f id" found "$kind" 1 134 "$program"; done
expect_err 'first to give up waiting for .*rank 1'
BEFORE="rm -f id" random_culprits 5 134 "$program"

# What a group costs a rank of a job, and that 1,000 of them made, used and freed cost nothing: at most 2
# descriptors and 64 KiB of shared memory and of its own for each, and threads that all share. To make
# one takes 1 ms or less on a quiet machine; the limit here is wide, for machines that are busy.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 4 "$BUILD/tests/support/groups_cost" --groups "${GROUPS_MADE:-1000}" --most-ms "${MOST_MS:-20}"
cat out
expect_code 0

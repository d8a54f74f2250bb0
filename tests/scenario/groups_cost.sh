# A group costs a rank at most 2 descriptors and 64 KiB of shared and private memory, and all groups share
# threads. 1,000 groups that are made, used and freed leave nothing. On a quiet machine a rank makes a group
# in 1 ms or less; the limit here is wide, because machines may be busy.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 4 "$BUILD/tests/support/groups_cost" --groups "${GROUPS_MADE:-1000}" --most-ms "${MOST_MS:-20}"
cat out
expect_code 0

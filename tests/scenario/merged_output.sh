# --output merged: equal lines of several ranks become one; each rank's order is kept.
source "$SOURCE/tests/scenario/common.sh"

run dlaunch --nproc 8 --output merged sh -c 'echo loading; echo rank $RANK; echo ready'
expect_code 0
expect_out '^\[0-7\] loading$'; expect_out '^\[0-7\] ready$'
for r in 0 1 2 3 4 5 6 7; do expect_out "^\[$r\] rank $r$"; done

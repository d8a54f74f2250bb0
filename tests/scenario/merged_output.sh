# --output merged: equal lines of several ranks become one; each rank's order is kept.
source "$SOURCE/tests/scenario/common.sh"

# dlaunch is stopped while the workers speak, so that it reads all lines within the time in which
# ranks can join a line, however busy the machine is.
cat >worker.sh <<'EOW'
echo $PPID >pid.$RANK
until [ -e go ]; do sleep 0.01; done
echo loading; echo rank $RANK; echo ready
touch said.$RANK
until [ -e end ]; do sleep 0.01; done
EOW
dlaunch --nproc 8 --output merged sh worker.sh >out 2>err </dev/null & started+=($!); job=$!
ranks() { [ "$(cat "$1".? 2>/dev/null | wc -l)" = 8 ]; }
all() { [ "$(compgen -G "$1.?" | wc -l)" = 8 ]; }
wait_until ranks pid || fail "not all workers started"
reader=$(cat pid.0); started+=("$reader")
kill -STOP "$reader"
touch go
wait_until all said || fail "not all workers have spoken"
kill -CONT "$reader"
touch end
wait "$job"; code=$?

expect_code 0
expect_out '^\[0-7\] loading$'; expect_out '^\[0-7\] ready$'
for r in 0 1 2 3 4 5 6 7; do expect_out "^\[$r\] rank $r$"; done
[ "$(wc -l <out)" = 10 ] || fail "stdout has more than the ten lines"

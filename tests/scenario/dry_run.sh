# --dry-run prints the whole plan and starts nothing.
source "$SOURCE/tests/scenario/common.sh"
run dlaunch --nproc 2 --bind core --dry-run touch ran
expect_code 0
[ ! -e ran ] || fail "a worker was started"
expect_out 'touch'
[ ! -s err ] || fail "stderr is not empty"
run dlaunch --nproc 2 --spares 1 --max-nproc 4 --hang-timeout 5m --hang-warning 30 --chaos kill=2s,slow=1m --error-file e.json \
  --only-rank 1 --dry-run touch ran
expect_code 0
for line in 'spares: 1' 'sizes: 2 to 4' 'hang time-out: 300 s' 'hang warning: 30 s' 'chaos: kill every 2 s, slow every 60 s for 5 s' \
  'error file: e.json' 'shown ranks: 1'; do
  grep -qxF "$line" out || fail "missing: $line"
done
run dlaunch --nproc 0 --dry-run touch ran
expect_code 64

# --emit writes the requested objects, and names the options that it leaves out.
run dlaunch --emit kubernetes --image train --nnodes 2 -x NOT_SET --error-file /of/the/pod touch ran
expect_code 0
expect_out '"/of/the/pod"'
expect_err '^dlaunch: warning: -x NOT_SET: it is not set here, so it is not passed on$'
[ "$(wc -l <err)" = 1 ] || fail "more than one warning"

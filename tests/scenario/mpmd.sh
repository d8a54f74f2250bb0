# A job of several programs is one world with consecutive ranks. Each program has its own arguments,
# variables and folder, from the command line or a file. A replaced rank runs its own program.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH"
export TMPDIR="$tmp"  # hides other jobs of this user
mkdir sub
tell='echo "$0 $RANK/$WORLD_SIZE $V $(basename "$PWD") $*"'
echo 'import os, sys; print("py", os.environ["RANK"], sys.argv[1:])' >mod.py

run dlaunch -np 2 -x V=1 sh -c "$tell" one '${rank}' : -n 1 --chdir sub -x V=2 sh -c "$tell" two '${program_rank}' \
  : -m mod x : mod.py y
expect_code 0; [ ! -s err ] || fail "more was said: $(cat err)"
here=$(basename "$PWD")
expect_out "^\[0\] one 0/5 1 $here 0$"; expect_out "^\[1\] one 1/5 1 $here 1$"; expect_out '^\[2\] two 2/5 2 sub 0$'
expect_out "^\[3\] py 3 \['x'\]$"; expect_out "^\[4\] py 4 \['y'\]$"; [ "$(wc -l <out)" = 5 ] || fail "not five lines: $(cat out)"
run dlaunch -n 1 -- echo a : -n 2; expect_code 0; expect_out '^\[0\] a : -n 2$'

# The same programs from files. srun's file names the ranks.
cat >apps <<'END'
# The file of --app.
-np 2 -x "V=a b" sh -c 'echo "$RANK of $WORLD_SIZE $V"'
-np 1 echo "last one" # and a comment
END
run dlaunch --app apps; expect_code 0; expect_out '^\[1\] 1 of 3 a b$'; expect_out '^\[2\] last one$'
printf '0,3 echo first %%t %%o\n* echo rest %%t %%o\n' >multi
run dlaunch -n 4 --multi-prog multi; expect_code 0
expect_out '^\[3\] first 3 1$'; expect_out '^\[1\] rest 1 0$'; expect_out '^\[2\] rest 2 1$'
run dlaunch --dry-run -n 2 -x V=1 one a : --chdir sub two; expect_code 0
expect_out '^program 0: ranks 0-1: one a$'; expect_out '^program 0 env: V=1$'; expect_out '^program 1: rank 2: two$'; expect_out '^program 1 folder: sub$'

# A wrong command line causes one line of error, and no worker starts.
bad() { run dlaunch "${@:3}"; expect_code "$1"; expect_err "$2"; [ ! -s out ] || fail "something ran: $(cat out)"; }
bad 64 "':' has no program after it" echo a :
bad 64 'program 1: --timeout holds for the whole job: give it before the first program' echo a : --timeout 3 echo b
bad 64 '--spares: a spare takes any rank' --spares 1 echo a : echo b
bad 64 'rank 4 of 5 has no program' -n 5 --multi-prog <(echo 0-3 echo)
bad 65 ':2: rank 1 has a program already' -n 5 --multi-prog <(printf '0-3 echo\n1 echo\n')
bad 66 'nosuch: No such file' --app nosuch
bad 127 "rank 1 could not be started: exec 'nosuch'" -n 1 true : nosuch

# The report names the failed program, and a restart starts each rank's own program.
run dlaunch -n 1 --error-file report.json sleep 60 : -n 1 sh -c 'exit 5'; expect_code 5
expect_err 'rank 1 \(sh, pid .* failed first: exit code 5'
grep -q '"program": "sh"' report.json || fail "the program is not in the report: $(cat report.json)"
# Rank 1 fails after rank 0 has printed its line.
run dlaunch --max-restarts 1 sh -c 'echo a $RANK; : >printed.$DLAUNCH_ROUND' \
  : sh -c 'echo b $RANK; until [ -e printed.$DLAUNCH_ROUND ]; do sleep 0.01; done; [ $DLAUNCH_ROUND = 2 ]'; expect_code 0
[ "$(sort out | uniq -c | sed 's/^ *//' | tr '\n' ';')" = "2 [0] a 0;2 [1] b 1;" ] || fail "not each its own twice: $(cat out)"

# An elastic job replaces the rank's process with a process of the same program, and keeps its size.
worker="$BUILD/tests/support/elastic_worker"; ln -s "$worker" left; ln -s "$worker" right
dlaunch --max-restarts 2 --nproc 1 ./left --steps 1000000000 --step-ms 5 --until stop --log log --size 100 \
  : -n 2 ./right --steps 1000000000 --step-ms 5 --until stop --log log --size 100 >out 2>err </dev/null & job=$!
started+=("$job")
# begun PATTERN: all three ranks are in a round whose number matches. It is higher if the peers see a death first.
begun() { [ "$(grep -Ec "^round $1 .* size 3 " log 2>/dev/null)" = 3 ]; }
wait_until begun 1 || fail "did not begin: $(cat err)"
dlaunchctl status >status || fail "no status"
grep -Eq '^ *1 +\./right ' status && grep -Eq '^ *0 +\./left ' status || fail "the programs are not in it: $(cat status)"
dlaunchctl resize 2 >ctl.out 2>&1 && fail "resized: $(cat ctl.out)"
grep -q 'its ranks run different programs' ctl.out || fail "no reason: $(cat ctl.out)"
pid=$(sed -n 's/^round 1 rank 2 size 3 pid \([0-9]*\) .*/\1/p' log); kill -9 "$pid"
wait_until begun '[23]' || fail "not replaced: $(cat err)"
pid=$(sed -n 's/^round [23] rank 2 size 3 pid \([0-9]*\) .*/\1/p' log)
tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^\./right ' || fail "another program took the place"
touch stop
wait "$job"; code=$?; expect_code 0

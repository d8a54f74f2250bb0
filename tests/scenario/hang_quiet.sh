# Programs that show nothing but output and CPU time: a job hangs when no worker does anything, and never while one
# computes. dlaunch says once that it sees no more than that.
source "$SOURCE/tests/scenario/common.sh"
told() { [ "$(grep -c "watches only the workers' output and CPU time" err)" = 1 ] || fail 'not told once what is watched'; }
loop='while :; do :; done'

run dlaunch --nproc 3 --hang-timeout 5s sh -c 'echo begun; exec sleep 1000'
expect_code 137; expect_under 60000; told
expect_err 'no rank has written output or used CPU time, for [0-9.]+ s now; they are replaced after 5 s'
expect_err 'failed first: it hung'; expect_err 'stacks of rank 2'

# One rank loops while the others wait; all loop. Nothing tells a loop from work.
run dlaunch --nproc 3 --hang-timeout 3s --timeout 8s sh -c "[ \$RANK = 1 ] || exec sleep 1000; $loop"
expect_code 75; told; ! grep 'it hung' err || fail 'a job was ended in which a rank computes'
run dlaunch --nproc 2 --hang-timeout 3s --timeout 8s sh -c "$loop"
expect_code 75; told; ! grep 'it hung' err || fail 'a job was ended that computes'

# Output alone is enough.
run dlaunch --nproc 2 --hang-timeout 3s --timeout 10s sh -c 'while :; do echo here; sleep 1; done'
expect_code 75; told; ! grep 'it hung' err || fail 'a job was ended that writes'

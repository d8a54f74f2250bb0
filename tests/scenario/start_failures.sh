# dlaunch names a program that it cannot start, and starts no other workers in vain.
source "$SOURCE/tests/scenario/common.sh"

one_line() { [ "$(wc -l < err)" = 1 ] || fail "one line expected: $(cat err)"; }
run dlaunch --nproc 4 ./nosuch; expect_code 127; expect_err "'./nosuch'.*No such file"; one_line
run dlaunch --nproc 4 nosuch; expect_code 127; expect_err "'nosuch'.*no such program in PATH"; one_line
run dlaunch --nproc 4 nosuch.py; expect_code 127; expect_err "'nosuch.py': no such file in the working folder"; one_line
touch train.py; run dlaunch --nproc 4 trian.py; expect_code 127; expect_err "no such file .*; did you mean 'train.py'\?"; one_line
run dlaunch --nproc 4 sub/nosuch.py; expect_code 127; expect_err "'sub/nosuch.py': No such file"; one_line
ln -s gone link; run dlaunch --nproc 4 ./link; expect_code 127; expect_err 'a link to a file that does not exist'; one_line
printf '#!\n' > nameless; chmod +x nameless; run dlaunch ./nameless; expect_code 126; expect_err 'names no interpreter'; one_line
PYTHON_EXEC= run dlaunch --nproc 1 train.py; expect_code 0
touch plain; run dlaunch --nproc 4 ./plain; expect_code 126; expect_err 'permission denied: chmod \+x'; one_line
mkdir folder; run dlaunch --nproc 4 ./folder; expect_code 126; expect_err 'folder'; one_line
run dlaunch --nproc 4 folder; expect_code 127; expect_err "'folder': it is a folder, and no program in PATH"; one_line
printf '#!/no/such/interpreter\n' > script; chmod +x script
run dlaunch --nproc 4 ./script; expect_code 127; expect_err "interpreter '/no/such/interpreter' does not exist"; one_line
echo 'echo hi' > noshebang; chmod +x noshebang
run dlaunch --nproc 4 ./noshebang; expect_code 126; expect_err "must begin with '#!'"; one_line
run dlaunch --nproc 4 --chdir /no/such/folder true; expect_code 71; expect_err "chdir to '/no/such/folder'"; one_line
mkdir sub; cp script sub/only-here
run dlaunch --nproc 4 --chdir sub ./only-here; expect_code 127; expect_err 'does not exist'; one_line
TMPDIR=/no/such/tmp run dlaunch --nproc 1 true; expect_code 73; expect_err '/no/such/tmp'; one_line

# A later worker cannot start: dlaunch reports it in the same way, and uses no restart for it.
printf '#!/bin/sh\nexec sleep 1000\n' > worker.0; chmod +x worker.0
run dlaunch --nproc 3 --max-restarts 3 --grace 60s './worker.${rank}'
expect_code 127; expect_under 30000
expect_err "rank [12] could not be started: exec './worker.[12]': No such file"
expect_err 'workers? w(as|ere) sent SIGTERM'

# dlaunch takes closed standard descriptors for /dev/null.
dlaunch --nproc 2 sh -c 'read x; echo "$RANK:$x" >> seen; echo e >&2' <&- >&- 2>&-
[ $? = 0 ] && [ "$(sort seen | tr '\n' ' ')" = '0: 1: ' ] || fail "with closed descriptors"

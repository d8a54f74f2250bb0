# Words after the program belong to the program, even if they look like options of dlaunch.
source "$SOURCE/tests/scenario/common.sh"
run dlaunch --nproc 1 printf '<%s>' --nproc 3 -x -- --help ''
expect_code 0
expect_out '<--nproc><3><-x><--><--help><>'
run dlaunch --nproc 1 -- printf '<%s>' --version -h
expect_code 0
expect_out '<--version><-h>'
printf '#!/bin/sh\necho odd "$@"\n' >--odd && chmod +x -- --odd
PATH=".:$PATH" run dlaunch -- --odd -n 7
expect_code 0
expect_out 'odd -n 7$'

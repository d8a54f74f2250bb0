# --bind gives workers disjoint CPUs of those that dlaunch may use. OMP_NUM_THREADS is the worker's share of the CPUs,
# or the value that the user has set.
source "$SOURCE/tests/scenario/common.sh"
usable=$(nproc)

run dlaunch --nproc "$usable" --bind core grep Cpus_allowed_list /proc/self/status
expect_code 0
[ "$(grep -o 'list:.*' out | sort -u | wc -l)" = "$usable" ] || fail "workers share CPUs"

run dlaunch --nproc 2 --bind core --report-bindings true
expect_code 0
expect_err '^socket 0 numa 0: '
expect_err '^rank 1: CPUs [0-9]'

run taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" \
  dlaunch --nproc 2 --bind core grep Cpus_allowed_list /proc/self/status
expect_code 0
[ "$(grep -o 'list:.*' out | sort -u | wc -l)" = 1 ] || fail "a worker left our affinity mask"

unset OMP_NUM_THREADS
run dlaunch --nproc "$((usable * 2))" sh -c 'echo omp=$OMP_NUM_THREADS'
[ "$(grep -c 'omp=1$' out)" = "$((usable * 2))" ] || fail "more workers than CPUs want one thread each"
[ ! -s err ] || fail "a note without -v"
run dlaunch -v --nproc 1 sh -c 'echo omp=$OMP_NUM_THREADS'
expect_err "^dlaunch: 1 worker on $usable usable CPUs?: OMP_NUM_THREADS=$usable\$"
OMP_NUM_THREADS=7 run dlaunch --nproc 1 sh -c 'echo omp=$OMP_NUM_THREADS'
expect_out 'omp=7$'
run dlaunch --omp-threads 3 sh -c 'echo omp=$OMP_NUM_THREADS'
expect_out 'omp=3$'
run dlaunch --omp-threads keep sh -c 'echo omp=${OMP_NUM_THREADS-unset}'
expect_out 'omp=unset$'

# Random programs on two hosts, with equal and unequal numbers of ranks. Each result is compared.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
hosts_up 2
export DLAUNCH_OP_TIMEOUT=30s
for shape in "4 2" "3 2"; do
  start_ranks $shape "$BUILD/tests/support/random_ops" --seed 7 --seconds 2 --any-order
  ranks_end 60
  cat out.0
  [ -z "${codes//0 /}" ] || ranks_fail "exit codes $codes"
  grep -qE '[1-9][0-9]+ operations, 0 wrong results' out.0 || ranks_fail "results"
done

# stdin goes to rank 0 alone, to one rank, to all, or to none.
source "$SOURCE/tests/scenario/common.sh"

count='n=$(wc -c); echo $n'
got() { seq 20000 | dlaunch --nproc 3 "$@" sh -c "$count" 2>err | sort | tr '\n' ' '; }
all=$(seq 20000 | wc -c)
[ "$(got)" = "[0] $all [1] 0 [2] 0 " ] || fail "default: $(got)"
[ "$(got --stdin 2)" = "[0] 0 [1] 0 [2] $all " ] || fail "rank 2: $(got --stdin 2)"
[ "$(got --stdin all)" = "[0] $all [1] $all [2] $all " ] || fail "all: $(got --stdin all)"
[ "$(got --stdin none)" = "[0] 0 [1] 0 [2] 0 " ] || fail "none: $(got --stdin none)"
seq 20000 > file
[ "$(dlaunch --nproc 1 sh -c "$count" < file)" = "[0] $all" ] || fail "from a file"
# A worker that does not read its stdin holds nothing up.
seq 1000000 | dlaunch --nproc 1 true || fail "unread stdin"

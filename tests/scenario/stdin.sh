# stdin goes to rank 0 alone, to one rank, to all, or to none. Input that no worker reads stays for the
# shell's loop, and for the shell that reads its script there.
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
# A worker that does not read its stdin delays no other worker.
seq 1000000 | dlaunch --nproc 1 true || fail "unread stdin"

# expect_seen LABEL EXPECTED GOT: both texts must be equal.
expect_seen() { [ "$3" = "$2" ] || fail "$1: saw '$3' instead of '$2'"; }
loop() { while read -r x; do dlaunch --nproc 2 "$@" 2>>err; echo "$x"; done | tr '\n' ' '; }
one='[ $RANK != 0 ] || read -r line; echo "$line" >> lines'
printf '%s\n' a b c > list
: > err
expect_seen "a loop over a file" "a b c " "$(loop sleep 0.2 < list)"
expect_seen "a loop over a pipe" "a b c " "$(loop sleep 0.2 < <(cat list))"
expect_seen "a loop whose ranks all may read a file" "a b c " "$(loop --stdin all sleep 0.3 < list)"
expect_seen "a loop in raw mode" "a b c " "$(loop --output raw sleep 0.2 < list)"
[ ! -s err ] || fail "a loop that lost nothing is warned"
# A worker that reads one line takes only this line, and its successor continues after it.
seq 6 > numbers
expect_seen "a rank 0 that reads one line" "1 3 5 " "$(loop sh -c "$one" < numbers)"
expect_seen "what that rank read" "2 4 6 " "$(grep . lines | tr '\n' ' ')"
rm lines
restarts='[ $RANK = 0 ] || exit 0; read -r line; echo "$line" >> lines; [ "$line" = 3 ]'
dlaunch --nproc 2 --max-restarts 5 sh -c "$restarts" < numbers 2>err || fail "restarts"
expect_seen "what rank 0 and its successors read" "1 2 3 " "$(tr '\n' ' ' < lines)"
# A script that the shell reads from its stdin.
printf '%s\n' 'echo one' 'dlaunch --nproc 2 sleep 0.2' 'echo two' > script
expect_seen "a script in a file" "one two " "$(bash < script | tr '\n' ' ')"
expect_seen "a script in a pipe" "one two " "$(bash < <(cat script) | tr '\n' ' ')"
expect_seen "a script in a socket" "one two " "$(
  python3 -c 'import socket, subprocess
ours, its = socket.socketpair()
ours.sendall(open("script", "rb").read()); ours.close()
subprocess.run(["bash"], stdin=its)' | tr '\n' ' ')"
# dlaunch cannot set a pipe back that several ranks read, and says so.
: > err
expect_seen "a loop over a pipe that all ranks may read" "a " "$(loop --stdin all sleep 2 < <(cat list; read -rt 3 <> <(:)))"
expect_err 'dlaunch read 4 bytes of stdin that no worker has read; use --stdin none \(or </dev/null\)'
# A closed stdin, or the stdin of nohup, is empty.
expect_seen "a closed stdin" "[0] 0" "$(dlaunch sh -c "$count" <&-)"
expect_seen "a stdin that can only be written" "[0] 0" "$(dlaunch sh -c "$count" 0>/dev/null)"

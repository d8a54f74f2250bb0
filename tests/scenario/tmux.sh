# --tmux: a pane for each rank, with its output and its input, in a new session or in windows of the session that
# dlaunch is started in.
source "$SOURCE/tests/scenario/common.sh"
command -v tmux >/dev/null || skip "no tmux"
# A server of our own for each part: a server that ends takes its time, and refuses new clients.
unset TMUX TMUX_PANE; export TERM=xterm SHELL=/bin/sh
own_server() { mkdir "$1"; export TMUX_TMPDIR=$tmp/$1; }
end_servers() { for TMUX_TMPDIR in "$tmp"/server*; do tmux kill-server; done 2>/dev/null; cleanup; }
trap end_servers EXIT
own_server server1
pane_of() { tmux list-panes -a -F '#{pane_id} #{pane_title}' | sed -n "s/^\(%[0-9]*\) rank $1\$/\1/p"; }
shows() { tmux capture-pane -p -t "$1" | grep -qE -- "$2"; }

# In a new session. Each rank asks for a word, in its own pane.
cat >asks.sh <<'W'
echo "rank $RANK on $(tty), $TERM"; read -r word; echo "got $word"; echo "$word" >"word.$RANK"
until [ -e end ]; do read -rt 0.05 <> <(:); done; exit "$((RANK == 1 ? 3 : 0))"
W
dlaunch --nproc 3 --job-id a.b --tmux bash asks.sh >out 2>err </dev/null & job=$!; started+=("$job")
wait_until eval '[ -n "$(pane_of 2)" ] && shows "$(pane_of 2)" "^rank 2 on /dev/pts/"' || fail "no pane of rank 2"
expect_err "^dlaunch: each rank has a pane: 'tmux attach -t dlaunch-a_b' shows them$"
[ "$(tmux list-panes -s -t dlaunch-a_b | wc -l)" = 3 ] || fail "$(tmux list-panes -a)"
shows "$(pane_of 2)" "$(tmux show-options -gv default-terminal)" || fail "TERM: $(tmux capture-pane -p -t "$(pane_of 2)")"
for rank in 0 1 2; do tmux send-keys -t "$(pane_of $rank)" "word$rank" Enter; done
for rank in 0 1 2; do
  wait_until test -s "word.$rank" || fail "no word of rank $rank"
  [ "$(cat word.$rank)" = "word$rank" ] || fail "rank $rank got $(cat word.$rank)"
done
# ^C in a pane is not for the job.
tmux send-keys -t "$(pane_of 1)" C-c; alive "$job" || fail "^C in a pane has ended the job"
touch end; wait "$job"; code=$?
expect_code 3; expect_err 'rank 1 .* failed first: exit code 3'
[ ! -s out ] || fail "output of ranks: $(cat out)"
wait_until eval '! tmux list-sessions 2>/dev/null | grep -q dlaunch' || fail "the session stays: $(tmux list-panes -a)"

# Inside a session, where dlaunch has its own pane: new windows there, whose panes wait for Enter, and the exit code.
rm -f end word.*; own_server server2
tmux new-session -d -s mine -x 200 -y 50 "dlaunch --nproc 18 --tmux --max-restarts 1 bash -c '
  echo round \$DLAUNCH_ROUND; [ \$RANK\$DLAUNCH_ROUND != 171 ] || exit 1; until [ -e end ]; do read -rt 0.05 <> <(:); done; true'
  echo \$? >code; exec sleep 1000"
wait_until eval '[ -n "$(pane_of 17)" ] && shows "$(pane_of 17)" "^round 2"' || fail "$(tmux list-panes -a; tmux capture-pane -p -t mine:0)"
shows "$(pane_of 17)" '^round 1' || fail "another pane after the restart"
[ "$(tmux list-windows -t mine -F '#{window_panes} #{window_name}' | tail -n 2 | tr '\n' ,)" = "16 ranks 0-15,2 ranks 16-17," ] ||
  fail "windows: $(tmux list-windows -t mine)"
python3 - <<'P' & viewer=$!
import os, pty, sys
pid, master = pty.fork()
if pid == 0: os.execvp("tmux", ["tmux", "attach", "-t", "mine"])
try:
    while os.read(master, 65536): pass
except OSError: pass
P
started+=("$viewer")
wait_until eval '[ "$(tmux display-message -p -t mine "#{session_attached}")" = 1 ]' || fail 'nobody attaches'
touch end; wait_until test -s code || fail "dlaunch does not end"
[ "$(cat code)" = 0 ] || fail "exit code $(cat code)"
wait_until shows "$(pane_of 17)" 'rank 17: dlaunch has ended; Enter closes' || fail "the pane: $(tmux capture-pane -p -t "$(pane_of 17)")"
last=$(pane_of 17); tmux send-keys -t "$last" Enter
wait_until eval '! tmux list-panes -a -F "#{pane_id}" | grep -qx "$last"' || fail "Enter does not close the pane"

# dlaunch is killed: the panes end, too.
rm -f end; own_server server3
dlaunch --nproc 1 --job-id killed --tmux sleep 1000 >out 2>err </dev/null & job=$!; started+=("$job")
wait_until eval '[ -n "$(pane_of 0)" ]' || fail "no pane"
kill -9 "$job"
wait_until eval '! tmux list-sessions 2>/dev/null | grep -q dlaunch' || fail "panes of a dlaunch that was killed"

# No tmux, and one that fails.
mkdir bin; ln -s "$(command -v bash)" bin/sh
PATH=$tmp/bin run "$BUILD/cli/dlaunch" --nproc 1 --tmux /bin/true
expect_code 127; expect_err '^dlaunch: --tmux: there is no tmux in PATH$'
TMUX_TMPDIR=/dev/null run dlaunch --nproc 1 --tmux true
expect_code 71; expect_err "^dlaunch: --tmux: 'tmux new-session' ended with exit code"

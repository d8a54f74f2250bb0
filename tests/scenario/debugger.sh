# A person debugs workers: ranks stop before their program begins, or run under a debugger that has the
# terminal, or are debugged once they fail.
source "$SOURCE/tests/scenario/common.sh"

stopped_pid() { sed -n "s/^dlaunch: rank $1 (pid \([0-9]*\) on .*) is stopped before its program begins: 'gdb -p .*/\1/p" err; }
is_stopped() { [ "$(sed 's/.*) //' "/proc/$1/stat" | cut -c1)" = T ]; }

# Rank 1 waits for a SIGCONT while rank 0 runs.
dlaunch --nproc 2 --stop-at-start 1 sh -c 'echo runs >$RANK' >out 2>err </dev/null & job=$!
started+=("$job")
wait_until grep -qs runs 0 || fail "rank 0 does not run"
wait_until grep -q "is stopped before its program begins" err || fail "dlaunch names no stopped rank"
pid=$(stopped_pid 1)
wait_until is_stopped "$pid" || fail "rank 1 (pid '$pid') is not stopped"
[ ! -e 1 ] || fail "rank 1 ran"
[ "$(readlink "/proc/$pid/exe")" = "$(readlink -f /bin/sh)" ] || fail "its program is not loaded"
kill -CONT "$pid"
wait "$job"; code=$?; expect_code 0
grep -q runs 1 || fail "rank 1 did not run after SIGCONT"
expect_err 'the limits for hangs, stragglers and new workers are off'
# A signal ends stopped workers, too.
dlaunch --nproc 2 --stop-at-start all sleep 1000 >out 2>err </dev/null & job=$!
started+=("$job")
wait_until eval '[ -n "$(stopped_pid 1)" ]' || fail "no stopped rank 1"
kill -TERM "$job"; wait "$job"; code=$?; expect_code 143

# --debugger: the debugger has the terminal.
cat > talk.py <<'P'
"""A person at a terminal, who types what follows once the terminal has shown something."""
import os, pty, select, sys, time

class Terminal:
    def __init__(self, *command):
        self.seen = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", NO_COLOR="1", PS1="prompt> ")
            os.execvp(command[0], command)

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            text = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += text.decode(errors="replace")
        return True

    def until(self, word, condition=None):
        """Waits until it shows the word (or the condition holds), and forgets all up to there."""
        end = time.monotonic() + 60
        while not (condition() if condition else word in self.seen):
            if time.monotonic() > end:
                sys.exit(f"no {word!r}; seen: {self.seen}")
            if not self.read(0.1) and word not in self.seen:
                sys.exit(f"ended without {word!r}; seen: {self.seen}")
        if not condition:
            self.seen = self.seen.split(word, 1)[1]

    def say(self, text):
        os.write(self.master, text.encode())

    def ask(self, prompt, text, answer=None):
        self.until(prompt)
        self.say(text + "\n")
        if answer:
            self.until(answer)

    def end(self, code):
        while self.read(60):
            pass
        got = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if got != code:
            sys.exit(f"exit code {got}, expected {code}; seen: {self.seen}")
P

# A breakpoint in rank 1 of a Python program, while rank 0 runs to its end.
cat > train.py <<'P'
import os, sys, time
rank = int(os.environ["RANK"])
depth = 41 + len(sys.argv)
if len(sys.argv) > 1 and rank == 1:
    raise ValueError(f"depth {depth}")
open(f"python.{rank}", "w").close()
while len(sys.argv) > 1 and not os.path.exists("enough"):
    time.sleep(0.01)
P
cat > pdb_rank.py <<'P'
import os
from talk import Terminal
t = Terminal("dlaunch", "--nproc", "2", "--debugger", "1", "train.py")
t.ask("(Pdb) ", "break 6", "Breakpoint 1")
t.ask("(Pdb) ", "continue", "train.py(6)")
t.until("rank 0 at its end", lambda: os.path.exists("python.0"))
if os.path.exists("python.1"):
    raise SystemExit("rank 1 did not stop at the breakpoint")
t.ask("(Pdb) ", "print(depth + 1)", "43")
t.ask("(Pdb) ", "quit")
t.end(0)
P
run python3 pdb_rank.py; expect_code 0
rm -f python.*
cat > post_mortem.py <<'P'
import os
from talk import Terminal
t = Terminal("dlaunch", "--nproc", "3", "--debugger", "on-failure", "train.py", "x")
t.until("ValueError: depth 43")
t.until("rank 1 (pid ")
t.until("failed: its debugger has the terminal")
t.ask("(Pdb) ", "print(depth + 1)", "44")
t.until("the others run", lambda: all(os.path.exists(f"python.{rank}") for rank in (0, 2)))
t.ask("(Pdb) ", "quit")
t.until("rank 1")
t.end(1)
P
run python3 post_mortem.py; expect_code 0

# ^Z stops the whole job, and fg gives the debugger the terminal again.
cat > suspend.py <<'P'
from talk import Terminal
t = Terminal("bash", "--norc", "--noprofile", "-i")
t.ask("prompt> ", "dlaunch --nproc 2 --debugger 1 train.py", "train.py")
t.until("(Pdb) ")
t.say("\x1a")
t.until("Stopped")
t.ask("prompt> ", "fg", "dlaunch")
t.say("print(6 * 7)\n")
t.until("42")
t.ask("(Pdb) ", "quit")
t.ask("prompt> ", "echo code $?", "code 0")
t.say("exit\n")
t.end(0)
P
run python3 suspend.py; expect_code 0

# Without a terminal there is no debugger.
run setsid -w dlaunch --debugger 0 train.py
expect_code 64
expect_err 'dlaunch has no terminal'

command -v gdb >/dev/null || { echo "without the cases with gdb: gdb is not installed"; exit 0; }
cat > program.c <<'C'
#include <stdio.h>
int main(int argc, char** argv) {
  int answer = 40 + argc;
  printf("answer %d\n", answer);
  return argv == 0;
}
C
gcc -g -o program program.c || { echo "without the cases with gdb: there is no gcc"; exit 0; }
dlaunch --stop-at-start 0 ./program x >out 2>err </dev/null & job=$!
started+=("$job")
wait_until eval '[ -n "$(stopped_pid 0)" ]' || fail "no stopped rank 0"
gdb -q -nx -batch -p "$(stopped_pid 0)" -ex 'handle SIGSTOP nostop noprint nopass' \
  -ex 'break program.c:4' -ex continue -ex 'print answer' >gdb.out 2>&1
grep -q '^\$1 = 42' gdb.out || fail "gdb does not find the program: $(cat gdb.out)"
kill -CONT "$(stopped_pid 0)" || fail "rank 0 has gone"  # gdb leaves it stopped, as it found it
wait "$job"; code=$?; expect_code 0
expect_out 'answer 42'

# --debugger: a breakpoint in rank 1, while rank 0 runs to its end.
cat > steps.c <<'C'
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int depth = 41 + argc;
  fclose(fopen(getenv("RANK"), "w"));
  if (argc > 1 && *getenv("RANK") == '1') *(volatile int*)0 = depth;
  return argv == 0;
}
C
gcc -g -o steps steps.c
rm -f 0 1
cat > gdb.py <<'P'
import os
from talk import Terminal
t = Terminal("dlaunch", "--nproc", "2", "--debugger", "1", "./steps")
t.ask("(gdb) ", "set pagination off")
t.ask("(gdb) ", "break steps.c:5", "Breakpoint 1 at")
t.ask("(gdb) ", "run", "Breakpoint 1, main")
t.until("rank 0 at its end", lambda: os.path.exists("0"))
if os.path.exists("1"):
    raise SystemExit("rank 1 did not stop at the breakpoint")
t.ask("(gdb) ", "print depth", "= 42")
t.ask("(gdb) ", "continue", "exited normally")
t.ask("(gdb) ", "quit")
t.end(0)
P
run python3 gdb.py; expect_code 0
[ -e 1 ] || fail "rank 1 did not continue from the breakpoint"

# A rank that crashes waits in gdb, and so do the others for it.
cat > crash.py <<'P'
from talk import Terminal
t = Terminal("dlaunch", "--nproc", "2", "--debugger", "on-failure", "./steps", "x")
t.until("failed: its debugger has the terminal")
t.ask("(gdb) ", "print depth", "= 43")
t.ask("(gdb) ", "quit")
t.until("rank 1")
t.end(139)
P
run python3 crash.py; expect_code 0

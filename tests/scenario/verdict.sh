# Sourced by the scenarios verdict_*: rank C of four gets stuck in its own code, and the others give up waiting for it.
# The report names C, with its stack, and the job has the exit code of the rank that gave up first.
source "$SOURCE/tests/scenario/common.sh"
kinds="lock sleep loop read stopped"
# For programs in Python.
cat >stuck_rank.py <<'P'
import os, signal, threading, time

def get_stuck(kind):
    lock = threading.Lock()
    if kind == "lock":
        with lock:
            lock.acquire()
    elif kind == "sleep":
        time.sleep(1000)
    elif kind == "read":
        os.read(os.pipe()[0], 1)
    elif kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while kind == "loop":
        pass
P

# verdict KIND CULPRIT CODE COMMAND…: runs it as a job of four ranks; MAYBE=1: the suspicion may be a wrong one, but then
# it must not be called certain; sets $right.
verdict() {
  local kind=$1 culprit=$2 want=$3; shift 3
  rm -f report.json
  CULPRIT=$culprit KIND=$kind run dlaunch --nproc 4 --grace 1s --error-file report.json "$@"
  expect_code "$want"
  python3 - "$culprit" "${MAYBE:-0}" >said 2>&1 <<'P' || fail "$kind in rank $culprit: $(cat said)"
import json, sys
culprit, maybe = int(sys.argv[1]), sys.argv[2] == "1"
report = json.load(open("report.json"))
suspects, certain = report.get("suspect_ranks", []), report.get("only_suspect", False)
right = suspects == [culprit]
# dlaunch takes stacks for 2.4 s, in which a busy machine may not come to all of them.
has_stack = any(culprit in place["ranks"] and place["frames"] for place in report.get("stacks", []))
if right and maybe and not has_stack:
    sys.exit(print("without the culprit's stack"))
print("right" if right else "wrong", suspects, [(s["ranks"], s["place"]) for s in report.get("stacks", [])])
if right:
    assert has_stack, report.get("stacks")
    assert f"rank {culprit}" in "\n".join(line for line in report["text"] if "suspect" in line or "perhaps" in line)
sys.exit(not right and (certain or not maybe))
P
  right=0; ! grep -q '^right' said || right=1
}

# found KIND CULPRIT CODE COMMAND…: in one of three tries the report names the culprit, with its stack. No report calls a wrong
# one certain. BEFORE: a command to run before each try.
found() {
  local try
  for try in 1 2 3; do
    ${BEFORE:-true}
    MAYBE=1 verdict "$@"
    [ $right = 0 ] || return 0
  done
  fail "$1 in rank $2: $(cat said)"
}

# random_culprits SEEDS CODE COMMAND…: a random kind of culprit in a random rank. Of twenty at most one is not found with its
# stack in three tries, half of the tries find theirs, and a wrong one is never called certain. VERDICT_SEEDS overrides the number of seeds. BEFORE: as above.
random_culprits() {
  local seeds=${VERDICT_SEEDS:-$1} want=$2 found=0 tries=0 seed; shift 2
  local -a list; read -ra list <<<"$kinds"
  for ((seed = 1; seed <= seeds; ++seed)); do
    RANDOM=$seed
    local how=${list[RANDOM % 5]} who=$((RANDOM % 4)) try
    for try in 1 2 3; do
      ${BEFORE:-true}
      tries=$((tries + 1))
      MAYBE=1 verdict "$how" $who "$want" "$@"
      [ $right = 0 ] || break
    done
    found=$((found + right))
  done
  echo "random culprits: found $found of $seeds in $tries tries"
  [ "$tries" -le $((2 * seeds)) ] || fail "$tries tries for $seeds culprits"
  [ $((20 * (seeds - found))) -le "$seeds" ] || fail "found $found of $seeds"
}

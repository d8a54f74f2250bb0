# One of several hosts has an accident at a random moment of random operations: all its ranks are killed
# or stopped, its connections are reset, or its link drops all packets. Every other rank ends in time,
# with an error that names a lost rank, or a rank that ended earlier because of a lost rank. No result is
# wrong. FAULTS is the number of trials, FAULT_SEED the first seed.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
export DLAUNCH_LINK_TIMEOUT=2s DLAUNCH_OP_TIMEOUT=4s
faults=${FAULTS:-4} seed=${FAULT_SEED:-1}
shapes=("2 2" "3 3" "4 4" "4 2") kinds=(drop kill freeze reset)

# judge VICTIM: compares the ranks that each error names with the ranks that were lost. A rank may also
# name a surviving rank whose own error is right, because that rank ended earlier.
judge() {
  python3 - "$1" "$ranks" "$hosts" "$kind" "$codes" <<'P'
import re, sys
victim, ranks, hosts = map(int, sys.argv[1:4])
kind, codes = sys.argv[4], [int(code) for code in sys.argv[5].split()]
host = [r * hosts // ranks + 1 for r in range(ranks)]
def numbers(text):
    for part in text.split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)
right, names, bad = set(), {}, {}
for r in range(ranks):
    said = open(f"err.{r}").read()
    lost = {q for q in range(ranks) if (host[q] == victim) != (host[r] == victim)}
    told = re.search(r"FAILED on rank.*", said)
    named = {n for text in re.findall(r"rank (\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)", told[0].split(": ", 1)[1])
             for n in numbers(text)} - {r} if told else set()
    if "WRONG" in said:
        bad[r] = f"wrong result: {said}"
    elif kind in ("kill", "freeze") and host[r] == victim:
        pass  # this rank was killed, or woke up after the end
    elif codes[r] != 1 or not told:
        bad[r] = f"exit code {codes[r]}: {said}"
    elif named & lost:
        right.add(r)
    else:
        names[r] = named
        bad[r] = f"names {sorted(named)}, has lost {sorted(lost)}: {said}"
while more := {r for r in names if names[r] & right} - right:
    right |= more
for r in sorted(set(bad) - right):
    print(f"rank {r}: {bad[r]}")
sys.exit(bool(set(bad) - right))
P
}
hosts_up 4
for ((trial = 0; trial < faults; ++trial, ++seed)); do
  RANDOM=$seed
  kind=${kinds[seed % 4]}; shape=${shapes[RANDOM % 4]}
  read -r ranks hosts <<<"$shape"
  victim=$((RANDOM % hosts + 1))
  what="FAULT_SEED=$seed: $kind of host $victim, $ranks ranks on $hosts hosts"
  start_ranks "$ranks" "$hosts" "$BUILD/tests/support/random_ops" --seed "$seed" --seconds 100 --any-order --groups 0 \
    --max-bytes $((1 << (10 + RANDOM % 12))) --announce
  for ((r = 0; r < ranks; ++r)); do
    wait_until grep -q joined out.$r || ranks_fail "$what: rank $r does not join"
  done
  read -rt "0.$(printf %03d $((RANDOM % 400)))" <> <(:)
  case $kind in
    kill) host_kill $victim ;;
    freeze) host_freeze $victim ;;
    *) link_cut $victim $kind ;;
  esac
  left=()
  for ((r = 0; r < ranks; ++r)); do
    [ $kind = freeze ] && [ $((r * hosts / ranks + 1)) = $victim ] || left+=("${rank_pids[r]}")
  done
  gone() { local p; for p in "${left[@]}"; do ! alive "$p" 2>/dev/null || return 1; done; }
  wait_until 40 gone || ranks_fail "$what: ranks hang"
  [ $kind != freeze ] || host_thaw $victim
  ranks_end 40
  judge $victim || ranks_fail "$what"
  link_heal $victim
done
echo "$faults faults of hosts, no hang, no wrong result, no wrong name"

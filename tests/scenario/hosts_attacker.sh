# A host without the secret is in the network of a job that trains. It replays to every port the traffic that
# it has recorded, sends handshakes that are almost right, and holds silent connections open. Sums stay exact,
# no process lets it in, and dlaunch needs memory and descriptors only for the few strangers that it serves at
# a time. ATTACK=full: 10,000 handshakes and 5,000 connections.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
[ "${ATTACK:-}" = full ] && fuzzed=10000 silent=5000 crowded=60 || { fuzzed=800; silent=1500; crowded=1; }
attack() { on 4 python3 "$SOURCE/tests/hosts/attacker.py" "$@" || job_fails "attacker: $*"; }
hosts_up 4
log=$PWD/log; : > log
worker=("$BUILD/tests/support/elastic_worker" --log "$log" --log-steps 1 --steps 1000000000 --until "$PWD/until" --step-ms 2)
export DLAUNCH_HOST_TIMEOUT=15s  # else a slow machine may lose a host, which begins another round
options=(--nnodes 3 --nproc 2 --max-restarts 100)
for h in 2 3; do python3 "$SOURCE/tests/hosts/attacker.py" listen host$h "heard.$h" & started+=($!); done
wait_until test -e heard.3 || fail "nobody listens"
start_job "1 2 3" "${options[@]}" "${worker[@]}"
newest() { python3 "$SOURCE/tests/hosts/check_rounds.py" "$log" newest; }
in_round() { read -r round size steps < <(newest); [ "$size" = 6 ] && [ "$round" -gt "$1" ] && [ "$steps" -gt "$2" ]; }
wait_until in_round 0 50 || job_fails "no first round"

# The descriptors and KiB of the dlaunch on host 1 that has the most.
most() {
  on 1 bash -c 'for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = dlaunch ] || continue
    echo $(ls $p/fd | wc -l) $(sed -n "s/VmRSS:\s*\([0-9]*\).*/\1/p" $p/status); done' | sort -n | tail -1
}
# Prints the steps of rank 0 in a second.
speed() { local a b; a=$(grep -c 'rank 0 done' log); read -rt 1 <> <(:); b=$(grep -c 'rank 0 done' log); echo $((b - a)); }
ports() { local h; for h in 1 2 3; do on $h ss -Hltn | awk -v a="$(host_addr $h)" '{sub(/.*:/, "", $4); print a ":" $4}'; done; }
read -r fds kib < <(most); quiet=$(speed)
[ "$(ports | wc -l)" -ge 1 ] || fail "no port"

cat heard.2 heard.3 > heard
attack replay heard > replayed; attack fuzz $fuzzed heard $(ports) > fuzz
cat replayed fuzz
grep -q WELCOME replayed fuzz && job_fails "the attacker was let in"
grep -qE '^[1-9][0-9]* bytes' replayed || fail "nothing was heard or replayed"
[ "$(sed 's/ .*//' replayed)" -le 100000 ] || job_fails "much was told to a stranger"

start_on 4 python3 "$SOURCE/tests/hosts/attacker.py" silent $silent 600 10.77.0.1:29400 > silent; silence=$!
wait_until grep -q 'all there' silent || job_fails "no silent connections"
before=$(grep -c 'rank 0 done' log); busy=$(speed); read -r fds_then kib_then < <(most)
echo "steps in a second: $quiet, with $silent silent connections $busy; descriptors $fds, $fds_then; KiB $kib, $kib_then"
wait_until eval '[ "$(grep -c "rank 0 done" log)" -gt $((before + 50)) ]' || job_fails "the job stands"
each=1; [ -z "${DLAUNCH_TLS:-}" ] || each=3  # descriptors of a connection
[ $((fds_then - fds)) -le $((each * 80)) ] && [ $((kib_then - kib)) -le 8192 ] || job_fails "dlaunch grows"
in_round 0 "$steps"; [ "$round" = 1 ] || job_fails "another round: $round"
# A worker that is lost during the attack gets its successor, at the latest when the connections have ended.
on 2 bash -c 'kill -9 $(grep -l elastic_worker /proc/[0-9]*/comm | tail -1 | tr -dc 0-9)'
t0=$(now_ms); wait_until "$crowded" in_round 1 0 && echo "round of all in the crowd after $(($(now_ms) - t0)) ms"
kill "$silence"; wait_until in_round 1 0 || job_fails "no round after the loss of a worker"
touch until; wait_job 60 0
wrong=$(python3 "$SOURCE/tests/hosts/check_rounds.py" "$log"); [ -z "$wrong" ] || job_fails "$wrong"
[ "$(cat out.* | grep -o 'step .*, result.*' | sort -u | wc -l)" = 1 ] || job_fails "results differ"
for f in replayed fuzz silent; do ! grep -qF "$(cat secret)" $f || fail "the secret"; done

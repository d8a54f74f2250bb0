# Links are cut while a job trains on eight hosts: between groups, in one direction, for some pairs only,
# for data or control only, and repeatedly. There are never two rounds at once and never a wrong sum. All
# hosts are back once the links are healed. A host that stops for less than its lease is not lost.
#
# CI runs three cases. By hand: CASES="halves flapping" or CASES=all. FLAP is the seconds of flapping,
# LOSSY the seconds of loss. CASES=random makes random cuts for CUTS seconds, with the seed CUT_SEED.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
all=(three_of_eight five_of_eight halves one_way_to_leader one_way_from_leader pair_apart half_open
  control_blinks control_lost stalled frozen asleep lossy flapping flapping_resets random)
cases=${CASES:-three_of_eight asleep flapping}
[ "$cases" = all ] && cases=${all[*]}
hosts_up 8
log=$PWD/log

# part NAME "HOSTS" "HOSTS" [RULE]: drops packets that match the rule between these hosts. one_way: only
# packets from the first hosts to the second.
one_way() {
  nft "table bridge part$1; delete table bridge part$1
    table bridge part$1 { chain c { type filter hook forward priority 0;
      iifname { $(names "$2") } oifname { $(names "$3") } ${4-} drop; }; }" || fail "part $*"
}
part() { one_way "$@"; one_way "$1back" "$3" "$2" "${4-}"; }
heal() { local t; for t in "$1" "$1back"; do nft "table bridge part$t; delete table bridge part$t"; done; }
names() { local h list=; for h in $1; do list+="${list:+, }\"host$h\""; done; echo "$list"; }

newest() { python3 "$SOURCE/tests/hosts/check_rounds.py" "$log" newest; }
# later_of SIZE: a round of that size, later than $round, has all of its ranks, and they make progress.
later_of() {
  local number size step
  read -r number size step < <(newest)
  [ "$number" -gt "$round" ] && [ "$size" = "$1" ] && [ "$step" -gt "$steps" ]
}
now_in() { read -r round size steps < <(newest); }
waits() { read -rt "$1" <> <(:); }
comes() { # comes SECONDS SIZE WHAT
  local t0; t0=$(now_ms)
  wait_until "$1" later_of "$2" || job_fails "$3: $(newest)"
  echo "$name: $3 after $(($(now_ms) - t0)) ms"
  now_in
}
sound() {
  local wrong; wrong=$(python3 "$SOURCE/tests/hosts/check_rounds.py" "$log")
  [ -z "$wrong" ] || job_fails "$wrong"
}
healed() { heal "$1"; comes 60 8 "healed, all in a round"; sound; }
# undisturbed: the same round makes progress.
undisturbed() {
  local number size step
  moved() { read -r number size step < <(newest); [ "$number" != "$round" ] || [ "$step" -gt "$steps" ]; }
  wait_until moved || job_fails "the job stands: $(newest)"
  [ "$number" = "$round" ] || job_fails "round $number after $round"
  now_in
}

three_of_eight() { part a "1 2 3" "4 5 6 7 8"; comes 60 3 "leader's three go on"; healed a; }
five_of_eight() { part a "1 2 3 4 5" "6 7 8"; comes 60 5 "leader's five go on"; healed a; }
halves() { part a "1 2 3 4" "5 6 7 8"; comes 60 4 "leader's half goes on"; healed a; }
one_way_to_leader() { one_way a 4 1; comes 60 7 "the others go on"; healed a; }
one_way_from_leader() { one_way a 1 4; comes 60 7 "the others go on"; healed a; }
# Hosts 3 and 4 see the leader, but not each other. No round has both until they see each other again.
pair_apart() { part a 3 4; waits 8; sound; now_in; heal a; comes 60 8 "healed, all in a round"; sound; }
half_open() { one_way a 3 4 'tcp dport != 29400 tcp sport != 29400'; waits 8; sound; now_in; heal a; comes 60 8 "healed, all in a round"; sound; }
control_blinks() { part a 5 1 'tcp dport 29400'; waits 1.5; heal a; waits 2; undisturbed; }
control_lost() { part a 5 1 'tcp dport 29400'; comes 60 7 "the others go on"; healed a; }
# A worker is stopped for longer than any lease. Then a whole host is stopped for less than a lease.
stalled() {
  local pid; pid=$(on 5 bash -c 'grep -lz elastic_worker /proc/[0-9]*/comm 2>/dev/null' | tail -1)
  pid=${pid#/proc/}; pid=${pid%/comm}
  on 5 kill -STOP "$pid"; waits 8; on 5 kill -CONT "$pid"; waits 1; undisturbed
  host_freeze 6; waits 1.5; host_thaw 6; waits 2; undisturbed
}
# Every link loses 5 % of its packets, and host 3 has a round trip of 200 ms.
lossy() {
  local h
  for h in 1 2 3 4 5 6 7 8; do link_loss $h 5%; done
  link_delay 3 100ms; waits "${LOSSY:-10}"; undisturbed
  link_delay 3 0; for h in 1 2 3 4 5 6 7 8; do link_loss $h 0; done
}
# A host is stopped for longer than a lease: when it wakes, its workers are no longer members of the job.
frozen() { host_freeze 6; comes 60 7 "the others go on"; host_thaw 6; comes 60 8 "thawed, all in a round"; sound; }
# All hosts are stopped for longer than any lease, as when a machine suspends its guests.
asleep() {
  local pids; pids=$(grep -lE '^(dlaunch|elastic_worker)$' /proc/[0-9]*/comm | tr -dc '0-9\n')
  kill -STOP $pids; waits 4; kill -CONT $pids
  waits 2; undisturbed
}
flap() { # flap SECONDS CUT HEAL
  local end=$(($(now_ms) + $1 * 1000))
  while [ "$(now_ms)" -lt "$end" ]; do
    eval "$2"; waits 2; eval "$3"; waits 2
  done
}
flapping() { flap "${FLAP:-4}" 'part a 4 "1 2 3 5 6 7 8"' 'heal a'; now_in; round=$((round - 1)) comes 60 8 "quiet, all in a round"; sound; }
flapping_resets() { flap "${FLAP:-4}" 'link_cut 4 reset' 'link_heal 4'; now_in; round=$((round - 1)) comes 60 8 "quiet, all in a round"; sound; }
random() {
  local end=$(($(now_ms) + ${CUTS:-60} * 1000)) way a b h
  RANDOM=${CUT_SEED:-1}
  while [ "$(now_ms)" -lt "$end" ]; do
    a= b= way=part
    for h in 1 2 3 4 5 6 7 8; do [ $((RANDOM % 2)) = 0 ] && a+=" $h" || b+=" $h"; done
    [ -n "$a" ] && [ -n "$b" ] || continue
    [ $((RANDOM % 3)) = 0 ] && way=one_way
    $way a "$a" "$b"; waits $((RANDOM % 7)).$((RANDOM % 10)); heal a; waits $((RANDOM % 4)).$((RANDOM % 10))
    sound
  done
  now_in; round=$((round - 1)) comes 60 8 "quiet, all in a round"; sound
}

: > log
start_job "1 2 3 4 5 6 7 8" --nnodes 2:8 --nproc 1 --max-restarts 10000 --join-timeout 60s \
  "$BUILD/tests/support/elastic_worker" --log "$log" --log-steps 1 --steps 1000000000 --until "$PWD/until" --step-ms 5
round=0 steps=0 name=start
comes 60 8 "all in a round"
for name in $cases; do "$name"; done
touch until
wait_job 60 0
[ "$(cat out.* | grep -c ': step .*, result')" = 8 ] && [ "$(cat out.* | grep -o 'step .*, result.*' | sort -u | wc -l)" = 1 ] ||
  job_fails "not eight equal results"
[ "$("$BUILD/tests/support/elastic_worker" --steps "$(sed -nE 's/.*: step ([0-9]+), .*/\1/p' out.1)" | grep -o 'result.*')" = \
  "$(grep -o 'result.*' out.1)" ] || job_fails "not the result of an undisturbed run"
for h in 1 2 3 4 5 6 7 8; do nothing_left $h; [ -z "$(ls "$(host_dir $h)/tmp")" ] || job_fails "left on host $h"; done

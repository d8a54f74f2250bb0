# Sites are killed, stopped and cut off at random; packets are lost. Then all is mended. Nothing hangs, each inner step
# counts once or not at all, and all sites end with the same bits. SITES_SEEDS="0:100" takes other seeds than 0 and 1.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
need_numpy
seeds=${SITES_SEEDS:-0:2}
[[ $seeds =~ ^[0-9]+:[0-9]+$ ]] || fail "SITES_SEEDS is not FIRST:END"
hosts_up 4
for h in 1 2 3 4; do link_rate $h 100mbit; link_delay $h 2ms; done
for h in 1 2 3 4; do echo "site$h $(host_addr $h):7000"; done >sites

start_site() {
  life[$1]=$((${life[$1]:--1} + 1))
  start_on "$1" dlaunch --sites sites --secret-file "$PWD/secret" --site-timeout 1s --site-grace 1s --site-journal "journals.$1" \
    "$python" "$SOURCE/tests/scenario/sites_ledger.py" "${life[$1]}" "$late" >>"out.$1" 2>>"err.$1" </dev/null
  job[$1]=$!
}
steps_of() { local steps; read -r steps _ 2>/dev/null <"steps.site$1" && echo "$steps" || echo 0; }
beyond() { local h; for h in 1 2 3 4; do [ "$(steps_of $h)" -gt "$1" ] || return 1; done; }
tenths() { sleep "$(($1 / 10)).$(($1 % 10))"; }

# One fault of a random site, for a random time.
strike() {
  local h=$((RANDOM % 4 + 1)) time=$((RANDOM % 20 + 1))
  case $((RANDOM % 5)) in
    0) log+=" kill$h/$time"; host_kill $h; wait "${job[h]}" 2>/dev/null; tenths $time; start_site $h ;;
    1) log+=" stop$h/$time"; host_freeze $h; tenths $time; host_thaw $h ;;
    2) log+=" cut$h/$time"; link_cut $h drop; tenths $time; link_heal $h ;;
    3) log+=" reset$h/$time"; link_cut $h reset; tenths $time; link_heal $h ;;
    4) log+=" loss$h/$time"; link_loss $h 3%; tenths $time; link_loss $h 0 ;;
  esac
}
# Two sites are lost at once, in different ways.
strike_two() {
  local h=$((RANDOM % 4 + 1)) other; other=$((h % 4 + 1))
  log+=" cut$h+kill$other"
  link_cut $h drop; host_kill $other; wait "${job[other]}" 2>/dev/null
  tenths $((RANDOM % 15 + 1)); link_heal $h; start_site $other
}

for ((seed = ${seeds%:*}; seed < ${seeds#*:}; ++seed)); do
  RANDOM=$((seed + 1)) log= job=() life=()
  late=carry; [ $((seed % 2)) = 0 ] || late=drop
  rm -rf out.* err.* steps.* enough journals.*
  for h in 1 2 3 4; do start_site $h; done
  wait_until beyond 8 || job_fails "seed $seed: no steps"
  for ((n = RANDOM % 4 + 2; n > 0; --n)); do
    if [ $((RANDOM % 5)) = 0 ]; then strike_two; else strike; fi
    tenths $((RANDOM % 8))
  done
  most=$(for h in 1 2 3 4; do steps_of $h; done | sort -n | tail -1)
  wait_until beyond $((most + 16)) || { tail -n 3 steps.site? >&2; job_fails "seed $seed ($log): they do not go on together"; }
  echo $(($(for h in 1 2 3 4; do steps_of $h; done | sort -n | tail -1) + 64)) >enough
  wait_job 60 0
  [ "$(cat out.* | grep -c 'account .* after '"$(cat enough)"' steps')" = 4 ] || job_fails "seed $seed ($log): not all are at the last step"
  [ "$(cat out.* | grep -o 'account [0-9a-f]*' | sort -u | wc -l)" = 1 ] || job_fails "seed $seed ($log): the sites differ"
  [ -z "${VERBOSE-}" ] || { echo "seed $seed, $late:$log"; cat out.* | grep account; }
done
echo "$seeds: no seed hangs, counts a step twice, or leaves sites that differ"

# Three sites train together, each a job of its own, over slow lines; one has two workers. One is cut off for seconds, another is killed and
# started again: nobody stops, all end with the same bits, and the journals tell of each merge and can be replayed.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
need_numpy
hosts_up 3
for h in 1 2 3; do link_rate $h 50mbit; link_delay $h 5ms; done
printf '%s\n' '# the sites' 'alps host1:7000' 'lake host2:7000' 'sea host3:7000' >sites
sites=(alps lake sea) workers=(1 2 1)
program=sites_train.py
start_site() {
  local h=$1; shift
  start_on "$h" dlaunch --sites sites --secret-file "$PWD/secret" --site-timeout "${site_timeout:-1s}" --site-grace 3s --site-journal journals \
    --nproc "${workers[h - 1]}" "$@" "$python" "$SOURCE/tests/scenario/$program" >>"out.$h" 2>>"err.$h" </dev/null
  job[h]=$!
}
equal_weights() {
  [ "$(cat out.* | grep -o 'weights [0-9a-f]*' | sort | uniq -c | sed 's/weights.*//; s/ //g')" = "$1" ] ||
    job_fails "the sites have different weights"
}
steps_of() { cat "steps.${sites[$1 - 1]}" 2>/dev/null || echo 0; }
# beyond STEPS H…: these sites have done more than that.
beyond() { local steps=$1 h; shift; for h in "$@"; do [ "$(steps_of "$h")" -gt "$steps" ] || return 1; done; }

job=()
start_site 1; start_site 2
wait_until grep -q 'site alps waits for site sea' err.1 || job_fails "nobody says that a site is missing"
[ "$(steps_of 1)" = 0 ] || job_fails "the sites begin without the third"
start_site 3
wait_until beyond 60 1 2 3 || job_fails "the sites do not train"

link_cut 3 drop
wait_until grep -q 'site alps has lost site sea: it is silent' err.1 || job_fails "nobody notices the cut"
cut=$(steps_of 3)
wait_until beyond $((cut + 300)) 1 2 || job_fails "a site that is cut off stops the others"
beyond $((cut + 60)) 3 && job_fails "a site goes on alone"
link_heal 3
wait_until beyond $((cut + 300)) 3 || job_fails "the site does not come back"

host_kill 2; wait "${job[2]}"
killed=$(steps_of 2); rm steps.lake
wait_until beyond $((killed + 200)) 1 3 || job_fails "a site that was killed stops the others"
start_site 2
wait_until beyond $((killed + 200)) 2 || job_fails "the site does not come back with the state of the others"

# A site is cut off while the others end: they wait for it, and it takes the result.
link_cut 3 drop
echo $(($(steps_of 1) + 100)) >enough
for h in 1 2; do
  wait_until grep -q "has ended its training, and waits for site sea to take the result, up to 60 s" err.$h || job_fails "a site does not wait for the one that it has lost"
done
link_heal 3
wait_job 60 0
[ "$(cat out.* | grep -c 'weights .* after '"$(cat enough)"' steps')" = 3 ] || job_fails "not all are at the last step"
equal_weights 3

for site in "${sites[@]}"; do
  run "$python" -m dlaunch.journal journals/$site.journal --replay; expect_code 0
  expect_out '^[1-9][0-9]* merges replayed, 0 of the states differ$'
  expect_out 'alps, lake, sea: [0-9]+ bytes  = [0-9a-f]{16}$'
done
run "$python" -m dlaunch.journal journals/alps.journal; expect_code 0
expect_out 'founding 0, epoch [0-9]+: alps, lake, sea begin together$'
expect_out 'alps, lake: [0-9]+ bytes; without sea$'
expect_out 'alps, sea: [0-9]+ bytes; without lake$'
echo torn >>journals/alps.journal
run "$python" -m dlaunch.journal journals/alps.journal --replay; expect_code 0; expect_out 'not written to its end'
run "$python" -m dlaunch.journal sites; expect_code 1; expect_err 'sites is not a journal of a site'

# Rank 0 of an elastic job dies with a merge in the background: the site comes back with the next rank 0.
printf '%s\n' 'lake host2:7001' 'sea host3:7001' >sites
rm out.* err.*; job=(); program=sites_elastic.py
start_site 2 --max-restarts 2; start_site 3
wait_job 60 0
equal_weights 2
grep -q 'dies with a merge in the background' out.2 || job_fails "nobody has died"
grep -q 'in round [2-9]' out.2 || job_fails "there was no second round"

if has_torch "$python"; then
  rm out.* err.*; job=(); program=sites_torch.py workers=(1 1 1) site_timeout=5s
  start_site 2; start_site 3
  wait_job 300 0
  equal_weights 2
fi

# --run-dir collects what a job does, and `dlaunch report` makes one page from it. Chromium, if it is there, shows the
# page without an error, with all figures.
source "$SOURCE/tests/scenario/common.sh"

cat >crash.sh <<'EOF'
[ $RANK = 1 ] && { echo "no more <b>memory</b></script>" >&2; exit 7; }
sleep 1000
EOF
run dlaunch --nproc 3 --max-restarts 1 --run-dir runs/one sh crash.sh
expect_code 7
for file in job.json events.jsonl error.json; do [ -s runs/one/$file ] || fail "no $file"; done
run dlaunch report runs/one
expect_code 0; expect_out '^runs/one/report.html$'
run dlaunch report runs/one --out -
cmp -s out runs/one/report.html || fail "--out - says something else"
grep -q '<b>memory</b></script>' runs/one/report.html && fail "a program's words are markup in the page"
grep -q 'rank 1' runs/one/report.html || fail "the page does not name rank 1"

run dlaunch report; expect_code 64
run dlaunch report runs/one --output page.html; expect_code 64; expect_err 'usage: dlaunch report DIR'
run dlaunch report --help; expect_code 0; expect_out '--out FILE'
run dlaunch report runs/one -o page.html; expect_code 0; [ -s page.html ] || fail "no page"
run dlaunch report runs; expect_code 66; expect_err 'runs has neither job.json nor events.jsonl'
run dlaunch report runs/one --out no/such/folder/x.html; [ "$code" -ne 0 ] || fail "a page that cannot be written is no error"
run dlaunch --run-dir runs/one --events e.jsonl true; expect_code 64; expect_err 'events.jsonl'
echo x >file
run dlaunch --run-dir file/x true; expect_code 73; expect_err 'file/x'

# A job that waits shows whom for.
run dlaunch --nproc 3 --run-dir runs/slow "$BUILD/tests/support/rounds_worker" --steps 150 --step-ms 20 --slow 2 --factor 3
expect_code 0
[ -s runs/slow/bandwidth.jsonl ] || fail "no bandwidth.jsonl"
grep -q '"16MiB": [1-9]' runs/slow/limits.json || fail "no limits: $(cat runs/slow/limits.json)"
[ -e runs/one/limits.json ] && [ ! -s runs/one/limits.json ] || fail "limits of a job without collectives"
run dlaunch report runs/slow; expect_code 0
grep -q '"costs_most":"rank 2 cost ' runs/slow/report.html || fail "the page does not say what cost most"
grep -q '"culprits":\[{' runs/slow/report.html || fail "the page has no list of what cost most"
grep -q '"caused_cause":"compute"' runs/slow/waiting.jsonl || fail "no cause of waits: $(tail -1 runs/slow/waiting.jsonl)"

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "Chromium is not installed: the page is not shown"
# shows FILE: the page after its script has run; its errors are in err.
shows() {
  run timeout 150 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --enable-logging=stderr \
    --window-size=390,844 --virtual-time-budget=5000 --dump-dom "file://$PWD/$1"
  expect_code 0
  grep -q 'CONSOLE' err && fail "the page's script fails: $(grep CONSOLE err)"
}
shows runs/one/report.html
for section in why-it-failed goodput rounds events environment; do expect_out "<section id=\"$section\">"; done
expect_out 'class="outcome failed"'; expect_out '<svg'; expect_out '<b>3</b>workers'
shows runs/slow/report.html
expect_out '<section id="bandwidth-by-size">'; expect_out '[0-9] GB/s'; expect_out 'all_reduce'
expect_out '<th[^>]*>best of the limit<'; expect_out 'copies in so large pieces while [0-9]+ do'
expect_out '<td[^>]*>[0-9.]+ GB/s</td><td[^>]*>[0-9.]+ %</td><td[^>]*>▇*</td>'; grep -q 'object HTML' out && fail "an element is shown as text"
expect_out '<section id="waiting-by-rank-and-time">'; expect_out 'class="outcome succeeded"'
expect_out '<p>rank 2 cost [0-9.]+ %: waits for its compute'
expect_out '<section id="time-of-each-rank">'
expect_out 'fill="var\(--waiting\)" aria-label="rank 0: waiting [^"]* of its [0-9.]+ s; for rank 2 \(compute\) '
waiting='waiting-by-rank-and-time">.*<i style="background:var\(--cause-compute\)"></i>compute</span>.*<rect [^>]*fill="var\(--cause-compute\)" fill-opacity="[0-9.]+"'
expect_out "$waiting"' aria-label="[0-9.]+ s: the others waited for rank 2 [0-9.]+ % of the time, mostly because of its compute"'
cp runs/slow/report.html waited.html
echo '<script>document.querySelectorAll("#waiting-by-rank-and-time button")[1].click()</script>' >>waited.html
shows waited.html
expect_out "$waiting"' aria-label="[0-9.]+ s: rank [01] waited [0-9.]+ % of the time, mostly for rank 2, mostly because of its compute"'

# Of a job with a busy host and many ranks the page lists the host, as the headline does, and the ranks that waited most.
cp -r runs/slow runs/large
python3 - <<'PY'
import json
report = json.load(open("runs/large/error.json"))
goodput = report["goodput"]
goodput["culprits"] = [dict(goodput["culprits"][0], rank=None, host="node7")]
waits = goodput["ranks"][0]
goodput["ranks"] = [dict(waits, rank=rank, waiting=[{"rank": 2, "cause": "gc", "s": 0.001 * rank}]) for rank in range(70)]
json.dump(report, open("runs/large/error.json", "w"))
PY
run dlaunch report runs/large; expect_code 0
shows runs/large/report.html
expect_out '<td>all of node7</td>'; expect_out 'The 64 of 70 ranks that waited most'
expect_out 'aria-label="rank 69: waiting [^"]*; for rank 2 \(GC\) 69.0 ms"'; expect_out 'aria-label="rank 6: waiting'
grep -q 'aria-label="rank 5: waiting' out && fail "a rank that waited less is shown, too"

# Of each of the last collectives the page says when it began and when it was over.
run dlaunch --nproc 2 --run-dir runs/killed sh -c '[ "$RANK" != 1 ] || { until grep -qs "in round 1 as 1 of" out; do sleep 0.05; done; sleep 2; kill -9 $$; } & exec "$0" --steps 1000 --step-ms 10' "$BUILD/tests/support/rounds_worker"
expect_code 137
run dlaunch report runs/killed; expect_code 0
shows runs/killed/report.html
expect_out '<th[^>]*>began before the end of the rank</th><th[^>]*>was over before that end</th>'
expect_out '<td>all_reduce #[0-9]+ [^<]*</td><td>done</td><td[^>]*>[0-9.]+ m?s</td><td[^>]*>[0-9.]+ m?s</td>'

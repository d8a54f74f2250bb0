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

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "Chromium is not installed: the page is not shown"
# shows FILE: the page after its script has run; its errors are in err.
shows() {
  run timeout 60 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --enable-logging=stderr \
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

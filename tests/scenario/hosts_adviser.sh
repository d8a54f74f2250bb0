# dlaunch-bench --model predicts the steps of a training between hosts, from a given link and from one
# that it measures, within 15 % of the real ones.
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
export DLAUNCH_OP_TIMEOUT=30s
# The queues hold what TCP sends ahead, so that the links lose nothing: the model knows no loss.
slow_line() {
  local shape=(root tbf rate 100mbit burst 25000 latency 400ms)
  tc qdisc replace dev "host$1" "${shape[@]}" && tc -n "host$1" qdisc replace dev eth0 "${shape[@]}" || fail "no slow line"
  link_delay "$1" 5ms  # a round trip takes 20 ms
}
hosts_up 4
for h in 1 2 3 4; do slow_line $h; done

# train HOSTS MIB STEP_MS BUCKET_KIB CODEC STEPS: sets $real to the time of a step, and $ask to the question.
train() {
  what="$1 hosts, $2 MiB, buckets of $4 KiB, $5"
  DLAUNCH_WIRE_CODEC=$5 start_ranks $1 $1 "$BUILD/tests/support/train_steps" $2 $3 $4 $6
  ranks_end 60; [ -z "${codes//0 /}" ] || ranks_fail "the training: exit codes $codes"
  real=$(cat out.0)
  ask=(dlaunch-bench --model $(($2 * 262144)) --step ${3}ms --workers $1 --bucket ${4}K --codec $5 --json ask.json)
}
# predicted FROM: the prediction in ask.json is within 15 % of the real time.
predicted() {
  python3 - "$what, from the $1 link" "$real" <<'PY'
import json, sys
what, real = sys.argv[1], float(sys.argv[2])
of = json.load(open("ask.json"))
step, link = of["predictions"][0]["step_ms"], of["link"]
print(f"{what} ({link['bytes_per_s'] / 1e6:.2f} MB/s, {link['round_trip_ms']:.1f} ms): predicted {step:.0f} ms, "
      f"real {real:.0f} ms ({100 * (step / real - 1):+.1f} %)")
sys.exit(not 0.85 <= step / real <= 1.15)
PY
}
from_given() { run on 1 "${ask[@]}" --link 100mbit,20ms; expect_code 0; predicted given; }
from_measured() {
  start_ranks $hosts $hosts "${ask[@]}"; ranks_end 60; [ -z "${codes//0 /}" ] || ranks_fail "the measurement: exit codes $codes"
  predicted measured
}
# check HOW… -- HOSTS …: a busy machine may disturb a training, but not three.
check() {
  local how=() try; while [ "$1" != -- ]; do how+=("$1"); shift; done; shift
  local hosts=$1 h
  for try in 1 2 3; do
    train "$@"
    for h in "${how[@]}"; do $h || continue 2; done
    return
  done
  fail "the prediction is wrong three times: $what"
}
check from_given from_measured -- 2 3 80 1024 none 12
check from_given from_measured -- 4 3 80 1024 none 12
check from_given -- 2 4 80 2048 int8 12
check from_given -- 2 1 400 1024 none 4  # the exchange hides behind backward, but for its last bucket

# The training service of the examples: a hundred jobs, ten at a time, the service killed twice in the middle, nothing
# lost and nothing run twice; failures, cancelling, logs, requests that are wrong; Kubernetes by a stand-in for kubectl.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH" PYTHONDONTWRITEBYTECODE=1 TMPDIR="$tmp"
service=$SOURCE/examples/training_service
run /usr/bin/python3 "$service/test_core.py"; expect_code 0
run /usr/bin/python3 "$SOURCE/tests/scenario/training_service.py" "$service/service.py"
cat out; cat err >&2
expect_code 0
[ "$(grep -c ': ok$' out)" = 8 ] || fail "not all parts were right"

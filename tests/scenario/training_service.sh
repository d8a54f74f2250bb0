# The training service of the examples. It runs a hundred jobs, ten at a time, and is killed twice meanwhile: it loses no
# job and runs no job twice. Also failures, cancelling, logs, wrong requests, and Kubernetes with an imitation of kubectl.
source "$SOURCE/tests/scenario/common.sh"
export PATH="$BUILD/cli/ctl:$PATH" PYTHONDONTWRITEBYTECODE=1 TMPDIR="$tmp"
service=$SOURCE/examples/training_service
run /usr/bin/python3 "$service/test_core.py"; expect_code 0
run /usr/bin/python3 "$SOURCE/tests/scenario/training_service.py" "$service/service.py"
cat out; cat err >&2
expect_code 0
[ "$(grep -c ': ok$' out)" = 8 ] || fail "not all parts were right"

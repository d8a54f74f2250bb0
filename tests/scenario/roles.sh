# --roles gives ranks their roles, and the job ends when its workers have ended. TF_CONFIG has the same addresses for all
# ranks, and dlaunch holds the ports. dlaunch sets it at the start, or when a program imports TensorFlow. A module in
# TensorFlow's place shows when. Scenario tensorflow has the real TensorFlow.
source "$SOURCE/tests/scenario/common.sh"
config() { grep -o '{"cluster".*' out | sed 's/,"task".*//' | sort -u; }

run dlaunch --roles chief,worker=2,ps --framework tensorflow bash -c 'echo $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE $RANK/$WORLD_SIZE $TF_CONFIG; touch told.$RANK; [ $ROLE_NAME = chief ] || exec sleep 600; until [ -e told.1 ] && [ -e told.2 ] && [ -e told.3 ]; do sleep 0.02; done'
expect_code 0; expect_under 60000
expect_out '^\[0\] chief 0/1 0/4 .*"task":\{"type":"chief","index":0\}'
expect_out '^\[2\] worker 1/2 2/4 .*"task":\{"type":"worker","index":1\}'
expect_out '^\[3\] ps 0/1 3/4 '
[ "$(config | wc -l)" = 1 ] || fail "the ranks have different addresses"
config | grep -qE '^\{"cluster":\{"chief":\["127.0.0.1:[0-9]+"\],"worker":\["127.0.0.1:[0-9]+","127.0.0.1:[0-9]+"\],"ps":\["127.0.0.1:[0-9]+"\]\}$' || fail "$(config)"
[ "$(config | grep -oE '[0-9]{4,}"' | sort -u | wc -l)" = 4 ] || fail "two ranks have one port"
# Without a chief the job ends with its workers. A process that a worker leaves does not end the servers too early.
run dlaunch --roles ps,worker=2 bash -c '[ $ROLE_NAME = worker ] || exec sleep 600; echo done $RANK'
expect_code 0; [ "$(grep -c done out)" = 2 ] || fail "not both workers ended"
run dlaunch --roles ps,worker=2 bash -c '[ $RANK = 1 ] && exit 7; exec sleep 600'
expect_code 7; expect_err 'rank 1 \(.*failed first: exit code 7'
run dlaunch --roles ps,worker=2 bash -c '[ $RANK = 0 ] && kill -9 $$; exec sleep 600'
expect_code 137; expect_err 'rank 0 \(.*failed first: killed by SIGKILL'
# A server that ignores SIGTERM is killed after --grace.
run dlaunch --roles ps,worker --grace 1s bash -c '[ $ROLE_NAME = worker ] && exit; trap "" TERM; sleep 600 & wait; wait'
expect_code 0; expect_under 60000
# A later round has a list of its own.
run dlaunch --roles worker=2 --max-restarts 1 --framework tf bash -c 'echo $DLAUNCH_ROUND $TF_CONFIG; [ $DLAUNCH_ROUND = 2 ]'
expect_code 0; [ "$(grep -c '] 2 {"cluster"' out)" = 2 ] || fail "no TF_CONFIG in the second round"

# Each rank, and no other program, can listen on its port, as gRPC does.
cat >listen.py <<'P'
import json, os, socket, sys
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["worker"][config["task"]["index"]].split(":")
other = socket.socket()
try:
    other.bind(("", int(port)))
    sys.exit("a stranger got the port")
except OSError:
    pass
with socket.create_server((host, int(port))):  # with SO_REUSEADDR
    print("listens")
P
run dlaunch --nproc 4 --framework tensorflow python3 listen.py; expect_code 0
[ "$(grep -c listens out)" = 4 ] || fail "not every rank listens"

# dlaunch sets TF_CONFIG at the import of TensorFlow. A program that only asks whether TensorFlow exists gets none.
mkdir -p site fake/tensorflow
cp "$SOURCE/python/dlaunch.pth" "$SOURCE/python/dlaunch_start.py" site
echo 'from os import environ' >fake/tensorflow/__init__.py
cat >ask.py <<'P'
import importlib.util, os, site, sys
site.addsitedir("site")
sys.path.insert(0, "fake")
importlib.util.find_spec("tensorflow")
print("before", os.environ.get("TF_CONFIG"))
__import__("tensorflow")
print("after", os.environ.get("TF_CONFIG"))
P
run dlaunch --nproc 2 python3 ask.py; expect_code 0
expect_out '^\[1\] before None$'; expect_out '^\[1\] after \{"cluster":\{"worker":\["127.0.0.1:[0-9]+","127.0.0.1:[0-9]+"\]\},"task":\{"type":"worker","index":1\}\}$'
[ "$(config | wc -l)" = 1 ] || fail "the ranks have different addresses"
# A Python without the package also gets TF_CONFIG, if a line of the script itself imports TensorFlow.
echo 'import tensorflow, os; print("plain", os.environ.get("TF_CONFIG"))' >plain.py
run dlaunch --nproc 2 -x PYTHONPATH=fake python3 plain.py; expect_code 0; expect_out '^\[1\] plain \{"cluster"'
run dlaunch --nproc 1 -x PYTHONPATH=fake python3 plain.py; expect_code 0; expect_out '^\[0\] plain None'
run dlaunch --nproc 2 -x TF_CONFIG=own python3 ask.py; expect_code 0; expect_out '^\[1\] after own$'
run dlaunch --nproc 2 --framework none python3 ask.py; expect_code 0; expect_out '^\[1\] after None$'
run dlaunch --nproc 1 python3 ask.py; expect_code 0; expect_out '^\[0\] after None$'
# The ports of --port-range are for libdlring, unless the user asks for TF_CONFIG.
run dlaunch --nproc 2 --port-range 45000-45199 python3 ask.py; expect_code 0; expect_out '^\[1\] after None$'
run dlaunch --nproc 2 --port-range 45000-45199 --framework tensorflow python3 ask.py; expect_code 0
expect_out '^\[1\] after .*"127.0.0.1:45[01][0-9]{2}","127.0.0.1:45[01][0-9]{2}"'

run dlaunch --nproc 3 --roles worker=2 true; expect_code 64; expect_err 'its roles have 2 ranks, and the job has 3'
run dlaunch --roles ps=2 true; expect_code 64

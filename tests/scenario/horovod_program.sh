# Unchanged programs of Horovod under --horovod: a training; an elastic training, which reaches the same
# weights whichever rank is killed; and a program that is not elastic.
source "$SOURCE/tests/scenario/common.sh"
need_torch
need_package
export PYTHONPATH="$BUILD/python${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
here=$SOURCE/tests/scenario

run dlaunch --nproc 2 --horovod "$python" "$here/horovod_program.py"
expect_code 0; expect_out '^\[0\] epoch 3: accuracy (1.00|0\.9[0-9]) on 2 ranks$'
run dlaunch --nproc 4 --horovod "$python" "$here/horovod_program.py" --fp16-allreduce --gradient-predivide-factor 2
expect_code 0; expect_out '^\[0\] epoch 3: accuracy (1.00|0\.9[0-9]) on 4 ranks$'
run dlaunch --nproc 2 --horovod "$python" "$here/horovod_program.py" --use-adasum
expect_code 0; expect_out '^\[0\] epoch 3: accuracy (1.00|0\.9[0-9]) on 2 ranks$'

# Both names give one module. Modules that dlaunch.horovod lacks are missing, even if Horovod is installed.
mkdir -p site/horovod/torch && echo 'raise SystemExit("the installed one")' | tee site/horovod/__init__.py >site/horovod/torch/__init__.py
PYTHONPATH=$PYTHONPATH:$PWD/site run dlaunch --nproc 1 --horovod "$python" -c '
import horovod, horovod.torch as hvd, dlaunch.horovod.torch
from horovod.torch.mpi_ops import allreduce
from horovod.common.exceptions import HorovodInternalError
assert hvd is dlaunch.horovod.torch and allreduce is hvd.allreduce and horovod.torch is hvd
assert hvd.__spec__.name == "dlaunch.horovod.torch" and HorovodInternalError is hvd.HorovodInternalError
try:
    import horovod.spark
except ModuleNotFoundError as error:
    print(error)'
expect_code 0; expect_out "No module named 'horovod.spark'"
# In a Python without the package the import fails, and the error says so.
PYTHONPATH= run dlaunch --nproc 1 --horovod "$python" -s -c 'import sys; sys.modules["dlaunch"] = None; import horovod.torch'
expect_code 1; expect_err "dlaunch --horovod: .*python.* cannot import dlaunch.horovod .*: install the package"
run dlaunch --nproc 1 "$python" -c 'import horovod.torch'; expect_code 1; expect_err "No module named 'horovod'"

# elastic FOLDER VICTIMS OPTIONS…: runs a training that kills these ranks.
elastic() { mkdir "$1" && run dlaunch --horovod "${@:3}" "$python" "$here/horovod_elastic.py" "$1" $2 && expect_code 0; }
same() { "$python" -c 'import sys, torch
a, b = map(torch.load, sys.argv[1:])
assert all(torch.equal(a[key], b[key]) for key in a), (a, b)' "$1/weights.pt" "$2/weights.pt" || fail "$1 and $2 have other weights"; }
elastic quiet "" --nproc 2
# Horovod's rank 0 dies twice. The second time it is the launcher's rank 1. A spare and a new process take the places.
elastic killed "0 0" --nproc 2 --spares 1 --max-restarts 3
same quiet killed
expect_err 'rank 0 .*killed by SIGKILL'; expect_err 'rank 1 .*killed by SIGKILL'
[ "$(grep -c 'of 2 ended' out)" = 2 ] || fail "not both ranks came to the end"
elastic shrunk 2 --nproc 3 --min-nproc 2 --max-restarts 0
[ "$(grep -c 'of 2 ended after resets \[2\]' out)" = 2 ] || fail "not both survivors went on"

cat >leave.py <<'P'
import os, sys
import horovod.torch as hvd, torch
hvd.init()
for i in range(20):
    hvd.allreduce(torch.ones(1))
    if i == 10 and hvd.rank() == 1 and not os.path.exists("gone"):
        open("gone", "x").close()
        if sys.argv[1] == "exit":
            sys.exit(3)
        raise RuntimeError("of its own")
print("ends", flush=True)
P
# The report names the rank that leaves first.
run dlaunch --nproc 2 --horovod "$python" leave.py exit
expect_code 3; expect_err 'rank 1 .* failed first: exit code 3'
# A rank with so many files open that its next descriptors are above 1023 gets the error, too.
cat >left.py <<'P'
import os, resource, signal, sys
import horovod.torch as hvd, torch
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # dlaunch's SIGTERM may come before the error
hvd.init()
hvd.allreduce(torch.ones(1))
if hvd.rank() == 1:
    sys.exit(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1024)]
try:
    hvd.allreduce(torch.ones(1))
except hvd.HorovodInternalError as error:
    print("told:", error, flush=True)
P
if [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 2048 ]; then
  run dlaunch --nproc 2 --grace 20s --horovod "$python" left.py
  expect_code 3; expect_out '^\[0\] told: the program of rank 1 has ended'
fi
rm gone; run dlaunch --nproc 2 --horovod "$python" leave.py raise
expect_code 1; expect_err 'RuntimeError: of its own'
rm gone; run dlaunch --nproc 2 --max-restarts 1 --horovod "$python" leave.py raise
expect_code 0; [ "$(grep -c 'ends$' out)" = 2 ] || fail "the restarted job did not end"

# Elastic ranks go on with all_reduce_some() in the next round when a rank dies that was late, or was in the call.
source "$SOURCE/tests/scenario/common.sh"
need_numpy
cat >some.py <<'P'
import os, signal, sys, threading, time
import numpy as np
import dlaunch

late = sys.argv[1] == "late"
comm = dlaunch.init(elastic=True, op_timeout=60)
x, out = np.ones(200_000), np.empty(200_000)
while True:
    last = comm.rank == comm.size - 1
    dies = comm.round == 1 and last
    try:
        if dies and late:
            while comm.some_behind() < 2:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        if dies:  # it waits in a call to which rank 0 does not come
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        for step in range(20):
            if comm.round == 1 and comm.rank == 0 and not late:
                while not comm.round_over:
                    time.sleep(0.001)
            need = comm.size - 1 if late else comm.size
            _, given, fate = comm.all_reduce_some(x, need, "avg", wait=0.001 if comm.round == 1 else 60, out=out)
            assert (out == 1).all()
        assert comm.round > 1 and given == [1] * comm.size and fate == "in"
        break
    except dlaunch.PeerLost:
        comm.rejoin(1)
print(f"done in round {comm.round}")
P
for way in late inside; do
  run dlaunch --nproc 3 --max-restarts 2 "$python" some.py $way
  expect_code 0
  [ "$(grep -cE 'done in round [2-9]$' out)" = 3 ] || fail "$way: not every rank is done in a later round: $(cat out err)"
done

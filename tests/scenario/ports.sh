# dlaunch guesses no port: it holds MASTER_PORT for the workers, reports a taken port in one line, and keeps
# two jobs at once apart.
source "$SOURCE/tests/scenario/common.sh"

cat > listen.py <<'P'
import os, socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
s.listen()
print("listening")
P
run dlaunch --nproc 1 python3 listen.py
expect_code 0; expect_out '^\[0\] listening$'

cat > hold.py <<'P'
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True)
time.sleep(1000)
P
python3 hold.py > port & started+=($!)
wait_until test -s port || fail "no port"
run dlaunch --nproc 1 --master-port "$(cat port)" true
expect_code 69; expect_err "MASTER_PORT: bind to 127.0.0.1:$(cat port): Address already in use"
[ "$(wc -l < err)" = 1 ] || fail "one line expected"
run dlaunch --nproc 1 --rdzv-endpoint "127.0.0.1:$(cat port)" true
expect_code 69; expect_err "listen on 127.0.0.1:$(cat port): Address already in use"; expect_err "has that port"

for i in 1 2 3 4; do
  dlaunch --standalone --nproc 2 python3 -c 'import os; print(os.environ["MASTER_PORT"])' > "job$i" 2>&1 &
  started+=($!)
done
for i in 0 1 2 3; do wait "${started[$((1 + i))]}" || fail "job $i failed"; done
[ "$(sed 's/.* //' job? | sort -u | wc -l)" = 4 ] || fail "jobs share a port"

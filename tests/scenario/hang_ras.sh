# NCCL's RAS service: at a hang dlaunch asks it which rank has called fewer collectives than the others, and that rank is
# replaced although all stacks are equal. A thread of each worker stands in for NCCL's. With NCCL_LIBRARY it is NCCL's own.
source "$SOURCE/tests/scenario/common.sh"
python=$(command -v python3) || skip 'Python is not installed'
free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
cat >sleepers.py <<'P'
import os, sys, time, traceback
sys.path.insert(0, os.environ["SOURCE"] + "/tests/scenario")
import ras_server
late, rank, size = int(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == late:
    open("late.tmp", "w").write(str(os.getpid()))
    os.rename("late.tmp", "late")
while not os.path.exists("late"):
    time.sleep(0.01)
pid = int(open("late").read())
if "serves" in sys.argv[2:]:
    ras_server.serve(lambda: ras_server.behind(size, late, pid))
if "gives_up" in sys.argv[2:] and rank == 0:
    try:
        raise RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE)")
    except RuntimeError:
        traceback.print_exc()
    time.sleep(3)  # as PyTorch's watchdog does, before it ends the process
    sys.exit(3)
time.sleep(1000)
P
export SOURCE
job() { rm -f late; run dlaunch --nproc 3 --hang-timeout 5s --timeout 100s --env NCCL_RAS_ADDR="localhost:$(free_port)" "$@"; }
sentence='NCCL RAS: rank 2 has not enqueued AllReduce #42 on NCCL communicator 27a079b828ff1a75, where rank 0-1 are waiting'

# dlaunch waits 0.8 s for the service, in which a busy machine may not come to it.
job_with_answer() {
  local try
  for try in 1 2 3; do
    job "$@"
    ! grep -q "$sentence" err || break
  done
}

job_with_answer "$python" sleepers.py 2 serves
expect_code 137; expect_err 'rank 2 .* failed first: it hung'; expect_err "$sentence"
[ "$(grep -c 'it hung' err)" = 1 ] || fail 'others were called hung, too'

# Without the service, or where a worker has switched it off, the stacks alone count: they are equal.
job "$python" sleepers.py 2
expect_code 137; [ "$(grep -c 'it hung' err)" -gt 1 ] || fail 'not all ranks were called hung'; ! grep 'NCCL RAS' err || fail 'no service has told this'
job --env NCCL_RAS_ENABLE=0 "$python" sleepers.py 2 serves
expect_code 137; ! grep 'NCCL RAS' err || fail 'the service was asked though it is switched off'

# A rank that gives up waiting: RAS says for whom, as no stack does.
job_with_answer "$python" sleepers.py 2 serves gives_up
expect_code 3; expect_err 'rank 0 .* was the first to give up waiting for others, perhaps rank 2'; expect_err "$sentence"

# NCCL itself, without a GPU: its own RAS threads, on a communicator that the program has filled in.
[ -n "${NCCL_LIBRARY:-}" ] || skip 'NCCL itself: NCCL_LIBRARY names a libnccl.so.2 of version 2.28 with symbols and debug information'
for tool in gdb nm; do command -v $tool >/dev/null || skip "NCCL itself: $tool is not installed"; done
fields='peerInfo peerInfoValid nRanks rank commHash seqNumber cudaDev nvmlDev abortFlag'
ask=(); for field in $fields; do ask+=(-ex "printf \"$field %lu\\n\", (unsigned long)&((struct ncclComm*)0)->$field"); done
gdb -batch "${ask[@]}" "$NCCL_LIBRARY" 2>/dev/null | grep -E '^[a-zA-Z]+ [0-9]+$' >offsets
[ "$(wc -l <offsets)" = 9 ] || skip 'NCCL itself: NCCL_LIBRARY has no debug information'
nm "$NCCL_LIBRARY" >symbols
cat >ranks.py <<'P'
import ctypes, os, sys, time
library, late, rank, size = sys.argv[1], int(sys.argv[2]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
offsets = {name: int(at) for name, at in (line.split() for line in open("offsets"))}
symbols = {words[2]: int(words[0], 16) for words in map(str.split, open("symbols")) if len(words) == 3}
nccl, libc = ctypes.CDLL(library), ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
base = ctypes.cast(nccl.pncclGetVersion, ctypes.c_void_p).value - symbols["pncclGetVersion"]
u64, i32, size_of_init, size_of_peer = ctypes.c_uint64, ctypes.c_int, 56, 120
hash, host = 0x27a079b828ff1a75, 77
def process(rank): return 1000 + rank
def put(address, value, kind): kind.from_address(address).value = value
def call(name, *kinds): return ctypes.CFUNCTYPE(i32, *kinds)(base + symbols[name])

peers, abort, memory = ctypes.create_string_buffer(size_of_peer * size), ctypes.c_uint32(0), ctypes.create_string_buffer(4 << 20)
for r in range(size):  # struct ncclPeerInfo
    peer = ctypes.addressof(peers) + size_of_peer * r
    for at in 0, 4, 8: put(peer + at, r, i32)
    put(peer + 16, hash + host, u64); put(peer + 24, hash + process(r), u64)
comm = ctypes.addressof(memory)
for name, value, kind in (("peerInfo", ctypes.addressof(peers), u64), ("peerInfoValid", 1, ctypes.c_uint8), ("nRanks", size, i32),
                          ("rank", rank, i32), ("commHash", hash, u64), ("cudaDev", rank, i32), ("nvmlDev", rank, i32),
                          ("abortFlag", ctypes.addressof(abort), u64)):
    put(comm + offsets[name], value, kind)
put(comm + offsets["seqNumber"] + 4 * 8, 41 if rank == late else 42, u64)  # ncclFuncAllReduce

mine = ctypes.create_string_buffer(size_of_init)  # struct rasRankInit
at = ctypes.addressof(mine)
put(at, 2, ctypes.c_uint16); put(at + 4, 0x0100007f, ctypes.c_uint32)  # AF_INET, 127.0.0.1
for offset, value in (28, os.getpid()), (32, rank), (36, rank): put(at + offset, value, i32)
put(at + 40, host, u64); put(at + 48, process(rank), u64)
assert call("_Z15ncclRasCommInitP8ncclCommP11rasRankInit", ctypes.c_void_p, ctypes.c_void_p)(comm, at) == 0
with open(f"init.{rank}.tmp", "wb") as file: file.write(mine.raw)
os.rename(f"init.{rank}.tmp", f"init.{rank}")
while not all(os.path.exists(f"init.{r}") for r in range(size)): time.sleep(0.01)
ranks = libc.malloc(size_of_init * size)  # NCCL frees it
for r in range(size): ctypes.memmove(ranks + size_of_init * r, open(f"init.{r}", "rb").read(), size_of_init)
assert call("_Z15ncclRasAddRanksP11rasRankIniti", ctypes.c_void_p, i32)(ranks, size) == 0
time.sleep(1000)
P
job "$python" ranks.py "$NCCL_LIBRARY" 2
expect_code 137; expect_err 'rank 2 .* failed first: it hung'; expect_err "$sentence"

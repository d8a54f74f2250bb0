# Programs with mpi4py are ranks of one world, over Open MPI and over MPICH, and fail like other programs.
# The wheel of mpi4py from PyPI serves both. Debian's package has Open MPI only.
source "$SOURCE/tests/scenario/common.sh"
for python in ${MPI4PY_PYTHON:-/usr/bin/python3 python3}; do
  "$python" -c 'import mpi4py' 2>/dev/null && break; python=
done
[ -n "$python" ] || skip "no Python has mpi4py (MPI4PY_PYTHON)"
cat > program.py <<'END'
import os, signal, sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
fault = sys.argv[1] if len(sys.argv) > 1 and comm.rank == 1 else ""
total = comm.allreduce(comm.rank + 1)
names = comm.gather(f"rank{comm.rank}")
said = comm.bcast({"names": names} if comm.rank == 0 else None)
ring = bytearray(1)
comm.Sendrecv(bytes([comm.rank]), (comm.rank + 1) % comm.size, recvbuf=ring, source=(comm.rank - 1) % comm.size)
print(f"rank {comm.rank} of {comm.size}: sum {total}, {len(said['names'])} names, {ring[0]} before", flush=True)
if fault == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if fault == "abort":
    comm.Abort(7)
if fault == "spawn":
    MPI.COMM_SELF.Spawn(sys.executable, args=["-c", ""], maxprocs=2)
comm.Barrier()
END
# The wheel loads the library by the name of its ABI, which Debian's MPICH lacks.
mkdir mpich
mpich=$(PATH=$PATH:/usr/sbin ldconfig -p | sed -n 's/.*libmpich\.so\.12 .*=> //p' | head -n 1)
[ -z "$mpich" ] || ln -s "$mpich" mpich/libmpi.so.12
settings_of() {
  case $1 in
    "Open MPI") settings=(MPI4PY_MPIABI=openmpi) ;;
    MPICH) settings=(MPI4PY_MPIABI=mpich LD_LIBRARY_PATH="$PWD/mpich:$LD_LIBRARY_PATH") ;;
  esac
}
tried=
for library in "Open MPI" MPICH; do
  settings_of "$library"
  has=$(env "${settings[@]}" "$python" -c 'from mpi4py import MPI; print(MPI.Get_library_version().split()[0])' 2>/dev/null)
  [ "$has" = "${library%% *}" ] || { echo "this mpi4py has no $library"; continue; }
  tried+=" $library"
  for n in 2 4; do
    run env "${settings[@]}" dlaunch --nproc $n "$python" program.py; expect_code 0
    for ((r = 0; r < n; ++r)); do
      expect_out "^\[$r\] rank $r of $n: sum $((n * (n + 1) / 2)), $n names, $(((r + n - 1) % n)) before$"
    done
    run env "${settings[@]}" dlaunch --nproc $n "$python" program.py kill
    expect_code 137; expect_err 'rank 1 \(pid [0-9]+ on host .*\) failed first: killed by SIGKILL'; expect_under 60000
  done
  run env "${settings[@]}" dlaunch --nproc 3 "$python" program.py abort
  expect_code 7; expect_err 'rank 1 .* failed first: exit code 7'
  # mpi4py's runner ends the job after an exception.
  run env "${settings[@]}" dlaunch --nproc 3 "$python" -m mpi4py program.py spawn
  [ "$code" != 0 ] || fail "a job whose rank cannot spawn ends well"
  expect_err 'rank 1 .* failed first: exit code 1'; expect_err 'MPI.COMM_SELF.Spawn'
  # An MPICH that is built on UCX, as Debian's, does not ask dlaunch.
  [ "$library" = MPICH ] || expect_err 'rank 1 called MPI_Comm_spawn\(\), which fails: dlaunch starts a fixed number of ranks'
done
[ -n "$tried" ] || skip "the mpi4py of $python has neither Open MPI nor MPICH"

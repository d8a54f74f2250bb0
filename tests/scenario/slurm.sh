# Under a real Slurm dlaunch needs no flags for its hosts: in a step of srun, in a batch script, and in the
# shell of salloc.
source "$SOURCE/tests/hosts/slurm.sh" || exit 1
hosts_up 4
slurm_topology=$(printf 'SwitchName=%s\n' 'a Nodes=host[1,3]' 'b Nodes=host[2,4]' 'top Switches=a,b')
slurm_up 1 2 3 4
export HOME=$tmp/home; mkdir -p "$HOME"
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $(hostname)'

# A step: one dlaunch on each node.
run on 1 srun -w host[1-3] --ntasks-per-node=1 dlaunch --nproc 2 bash -c "$where"; expect_code 0
for r in 0 1 2 3 4 5; do
  expect_out "^\[$r\] $r/6 $((r % 2))/2 $((r / 2))/3 10.77.0.1 host$((r / 2 + 1))$"
done
[ -z "$(more_than_waits err)" ] || fail "words on stderr"
[ "$(stat -c %a "$HOME/.dlaunch/key")" = 600 ] && [ "$(ls -A "$HOME/.dlaunch")" = key ] || fail "the key"
run on 1 srun -w host[1-2] --ntasks-per-node=1 dlaunch --nproc 2 hello; expect_code 0
# A failure of the job is a failure of the step, with the same exit code.
run on 1 srun -w host[1-2] --ntasks-per-node=1 dlaunch --nproc 2 bash -c 'if [ $RANK = 3 ]; then exit 7; fi; exec sleep 100'
expect_code 7; expect_err 'rank 3 \(pid [0-9]+ on host host2\) failed first: exit code 7'
# The nodes do not share the home folder, so their keys differ.
run on 1 srun -w host[1-2] --ntasks-per-node=1 bash -c 'mkdir -p $HOME/$SLURM_NODEID; HOME=$HOME/$SLURM_NODEID exec dlaunch --join-timeout 10 true'
expect_code 69; expect_err 'cannot join the job .*; its hosts have to share .*/1/.dlaunch/key, or a --secret-file'
# Several dlaunch on a node.
run on 1 srun -w host1 -n2 dlaunch true; expect_code 64
expect_err 'Slurm started 2 dlaunch on host1, and each node needs one'
# Another program has the port: the leader says so, and no node waits.
run on 1 srun -w host[1-2] --ntasks-per-node=1 bash -c '
  if [ $SLURM_NODEID = 0 ]; then
    python3 -c "import socket, sys, subprocess
s = socket.socket(); s.bind((\"10.77.0.1\", 20480 + (int(sys.argv[1]) * 61 + int(sys.argv[2])) % 12281)); s.listen()
sys.exit(subprocess.run([\"dlaunch\", \"true\"]).returncode)" $SLURM_JOB_ID $SLURM_STEP_ID
  else
    dlaunch --join-timeout 3 true
  fi'
expect_code 69; expect_err 'Address already in use'

# Hosts below one switch of Slurm get neighbouring ranks, in a step and where dlaunch starts the steps.
racks_are() { local h r=0; for h in 1 3 2 4; do expect_out "^\[$r\] $r/4 0/1 $r/4 10.77.0.1 host$h$"; r=$((r + 1)); done; }
run on 1 srun -w host[1-4] --ntasks-per-node=1 dlaunch --topology slurm bash -c "$where"; expect_code 0; racks_are
cat > racks.sh <<END
#!/bin/bash
#SBATCH --nodelist=host[1-4] --ntasks-per-node=1 --time=10 --output=racks.out
dlaunch --topology slurm bash -c '$where'
END
run on 1 sbatch --wait racks.sh; expect_code 0
cp racks.out out; racks_are
run on 1 salloc -Q -w host[1-2] dlaunch --topology slurm true; expect_code 64; expect_err 'host host1 has no SLURM_TOPOLOGY_ADDR'

# A batch script: the job has one worker for each of Slurm's tasks.
cat > batch.sh <<END
#!/bin/bash
#SBATCH --nodelist=host[1-3] --ntasks=5 --time=10 --output=batch.out --error=batch.err
export WORD="two  words"
dlaunch bash -c '$where "\$WORD"'
dlaunch --nproc 2 hello
END
run on 1 sbatch --wait batch.sh; expect_code 0
for line in '0/5 0/3 0/3 10.77.0.1 host1' '2/5 2/3 0/3 10.77.0.1 host1' '3/5 0/1 1/3 10.77.0.1 host2' \
  '4/5 0/1 2/3 10.77.0.1 host3'; do
  grep -qx "\[${line%%/*}\] $line two  words" batch.out || { cat batch.out batch.err >&2; fail "no $line"; }
done
[ -z "$(more_than_waits batch.err)" ] || { cat batch.err >&2; fail "words of the batch script"; }

# The example, with the Python that the package was built for.
if compgen -G "$BUILD/python/dlaunch/_core*.so" >/dev/null && /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
  cp -r "$SOURCE/examples" . && cd examples/cluster || fail "no examples"
  export PYTHONPATH="$BUILD/python" PYTHON_EXEC=/usr/bin/python3
  run on 1 sbatch --wait slurm.sh; expect_code 0
  [ "$(sort hello.out)" = "$(for r in 0 1 2 3; do echo "[$r] rank $r of 4: 6"; done)" ] || { cat hello.out >&2; fail "the example"; }
  cd "$tmp" || exit 1
fi

# Each node uses the GPUs that Slurm has given the job there. All workers get the number of a job array.
start_on 1 srun -w host2 -n1 --gres=gpu:1 sleep 100 </dev/null >/dev/null 2>&1
wait_until eval '[ "$(on 1 squeue -h -t running -w host2 | wc -l)" = 1 ]' || fail "nobody holds host2's first GPU"
cat > array.sh <<'END'
#!/bin/bash
#SBATCH --nodelist=host[1-2] --ntasks=2 --gres=gpu:1 --array=7 --time=10 --output=array.out
dlaunch sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES $SLURM_ARRAY_TASK_ID'
END
run on 1 sbatch --wait array.sh; expect_code 0
[ "$(sort array.out)" = $'[0] host1 0 7\n[1] host2 1 7' ] || { cat array.out >&2; fail "devices, or the array's number"; }
on 1 scancel -u root

# In salloc's shell dlaunch leads, but its host is not one of the nodes. The exit code is that of the
# failed rank, and the report comes last.
run on 1 salloc -Q -w host[3-4] dlaunch --nproc 2 bash -c \
  'if [ $RANK = 3 ]; then exit 7; fi; exec sleep 100'
expect_code 7; expect_err 'rank 3 \(pid [0-9]+ on host host4\) failed first: exit code 7'
tail -n 1 err | grep -q '^dlaunch:' || fail "the report is not the last"
no_worker() { [ "$(on "$1" bash -c 'cat /proc/[0-9]*/comm 2>/dev/null' | grep -cE '^(dlaunch|sleep)$')" = 0 ]; }
for h in 1 3 4; do wait_until no_worker $h || { on $h ps -ef >&2; fail "processes are left on host $h"; }; done

# A Slurm on test hosts, with the real slurmctld, slurmd and munged: sourced instead of hosts.sh.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
for tool in slurmctld slurmd srun sbatch salloc munged; do
  [ -n "$(PATH=$PATH:/usr/sbin command -v $tool)" ] || skip "$tool is not installed"
done
id munge >/dev/null 2>&1 || skip "there is no user munge"

# slurm_up H…: nodes host<H>; host 1 has the controller, and users log in there. Unnamed hosts are
# not Slurm's. slurm_credential_s: how long Slurm waits before it restarts a job that was put back
# into the queue, and the limit for starting one. slurm_topology: the lines of a topology.conf.
slurm_up() {
  local h nodes=
  hosts_probe
  mkdir -p slurm/state slurm/spool && install -d -o munge -g munge -m 755 /run/munge /run/mungelib || fail "no folders"
  (umask 077; head -c 128 /dev/urandom > /run/mungelib/key; chown munge: /run/mungelib/key)
  for h in "$@"; do nodes+=${nodes:+,}host$h; mkdir -p "slurm/spool/host$h"; done
  cat > slurm/slurm.conf <<END
ClusterName=test
SlurmctldHost=host1($(host_addr 1))
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=/run/munge/socket,cred_expire=${slurm_credential_s:-120}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
StateSaveLocation=$tmp/slurm/state
SlurmdSpoolDir=$tmp/slurm/spool/%n
SlurmctldPidFile=$tmp/slurm/slurmctld.pid
SlurmdPidFile=$tmp/slurm/slurmd-%n.pid
SlurmdParameters=config_overrides
KillWait=5
SchedulerParameters=sched_interval=1,bf_interval=1
GresTypes=gpu
NodeName=$nodes CPUs=4 RealMemory=1000 Gres=gpu:2
${slurm_topology:+TopologyPlugin=topology/tree}
PartitionName=all Nodes=$nodes Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
END
  [ -z "${slurm_topology:-}" ] || echo "$slurm_topology" > slurm/topology.conf
  printf 'CgroupPlugin=cgroup/v1\n' > slurm/cgroup.conf
  printf 'Name=gpu File=/dev/null,/dev/zero\n' > slurm/gres.conf  # two GPUs to allocate
  export SLURM_CONF=$tmp/slurm/slurm.conf
  chmod 755 "$tmp" "$tmp/slurm"
  setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged --foreground --force \
    --socket /run/munge/socket --key-file /run/mungelib/key --pid-file /run/mungelib/pid \
    --seed-file /run/mungelib/seed --log-file /run/mungelib/log </dev/null >slurm/munged 2>&1 &
  started+=($!); disown
  wait_until test -S /run/munge/socket || skip "munged does not start: $(tail -n 2 slurm/munged)"
  start_on 1 /usr/sbin/slurmctld -D >slurm/slurmctld 2>&1 </dev/null
  disown
  for h in "$@"; do
    start_on "$h" /usr/sbin/slurmd -D -N "host$h" >"slurm/slurmd$h" 2>&1 </dev/null
    disown
  done
  wait_until eval '[ "$(on 1 sinfo -h -N -t idle -o %n 2>/dev/null | wc -l)" = '$#' ]' ||
    skip "slurm does not come up here: $(tail -qn 2 slurm/slurmctld slurm/slurmd*)"
}

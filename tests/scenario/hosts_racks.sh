# Six hosts are in two racks, and a line between the racks carries as much as that of one host. Sums and parts cross it
# once for each rack, also with several ranks on each host, while hosts without racks send them across many times.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
source "$SOURCE/tests/hosts/ranks.sh" || exit 1
export DLAUNCH_OP_TIMEOUT=60s
hosts_up 6
rack_up left 500mbit 1 2 3
rack_up right 500mbit 4 5 6
# Racks alternate in the order in which hosts come.
printf 'SwitchName=%s\n' 'left Nodes=host[1-3]' 'right Nodes=host[4-6]' 'top Switches=left,right' >racks.conf

bytes=4000000 calls=10
# crossing NPROC COLLECTIVE ARGS…: runs the calls, half of them in place, and sets $crossed to the bytes that left a rack in
# each, in the sizes of a call.
crossing() {
  local nproc=$1 collective=$2 before; shift 2
  before=$(bytes_out_of_rack left)
  start_job "1 4 2 5 3 6" --nnodes 6 --nproc "$nproc" "$@" \
    dlaunch-bench "$collective" -b $bytes -w 0 -n $calls -c 1
  wait_job 120 0
  grep -q 'Out of bounds values : 0 OK' out.* || job_fails "wrong results"
  crossed=$(awk -v all=$(($(bytes_out_of_rack left) - before)) "BEGIN { printf \"%.2f\", all / $bytes / (2 * $calls + 2) }")
  [ -z "${VERBOSE:-}" ] || echo "$collective, $nproc ranks a host, $*: $crossed times its bytes"
}
less() { awk "BEGIN { exit !($1 < $2) }"; }
for nproc in 1 2; do
  crossing $nproc all_reduce --topology racks.conf
  less "$crossed" 1.4 || fail "$nproc ranks a host: an all_reduce leaves a rack $crossed times"
  crossing $nproc all_reduce
  less 2.5 "$crossed" || fail "$nproc ranks a host, no racks: an all_reduce leaves a rack $crossed times only"
done
crossing 1 all_gather --topology racks.conf
less "$crossed" 0.8 || fail "an all_gather leaves a rack $crossed times"
crossing 1 reduce_scatter --topology racks.conf
less "$crossed" 0.8 || fail "a reduce_scatter leaves a rack $crossed times"

# dlaunch gives each worker the rack of its host, from one file or from each host.
says='echo $DLAUNCH_RACK@$(hostname)'
start_job "1 4" --nnodes 2 --topology racks.conf bash -c "$says"; wait_job 60 0
cat out.* | grep -qE 'top\.left@host1$' && cat out.* | grep -qE 'top\.right@host4$' || job_fails "wrong racks"
start_job "" --; start_dlaunch 1 --nnodes 2 --rack a bash -c "$says"; DLAUNCH_RACK=b start_dlaunch 4 --nnodes 2 bash -c "$says"
wait_job 60 0
cat out.* | grep -qE ' a@host1$' && cat out.* | grep -qE ' b@host4$' || job_fails "wrong racks of hosts"

# All others name a rank that is lost in the middle of such a sum.
DLAUNCH_DEBUG=explain DLAUNCH_OP_TIMEOUT=20s start_ranks 6 6 \
  bash -c 'DLAUNCH_RACK=rack$((${HOSTNAME#host} > 3)) exec "$@"' - dlaunch-bench all_reduce -b 4M -n 1000000 -c 0
wait_until grep -q 'within racks and between them' err.0 || ranks_fail "no racks"
host_kill 5; ranks_end 40
ranks_told "0 1 2 3 5" 'rank 4 .*(was lost: its connection ended|closed its connection)'

# Unusual hosts: one with only IPv6's loopback, one without a loopback, and ones whose folder for temporary
# files is full or cannot be written.
source "$SOURCE/tests/scenario/common.sh"
unshare -nm true 2>/dev/null || skip "it needs root, for namespaces"
dlaunch=$BUILD/cli/dlaunch
worker=$BUILD/tests/support/rounds_worker
# in_bare COMMANDS…: runs the commands in namespaces of their own.
in_bare() { run unshare -nm bash -c "$1"; }

# -- Only ::1
only_v6='ip link set lo up && ip addr del 127.0.0.1/8 dev lo || exit 99; '
in_bare "$only_v6"'dlaunch --nproc 2 sh -c "echo at \$MASTER_ADDR"'
expect_code 0; expect_out '^\[1\] at ::1$'
in_bare "$only_v6"'dlaunch --nproc 2 --master-addr ::1 sh -c "echo at \$MASTER_ADDR"'
expect_code 0; expect_out '^\[0\] at ::1$'
for transport in auto tcp; do
  in_bare "$only_v6 dlaunch --nproc 3 --transport $transport $worker --steps 20"
  expect_code 0
done
run dlaunch --nproc 1 --master-addr ::1 sh -c 'echo at $MASTER_ADDR'; expect_code 0; expect_out 'at ::1$'

# -- No loopback: one line
in_bare 'ip link set lo up; ip addr flush dev lo; ip link set lo down; dlaunch --nproc 2 true'
expect_code 69; expect_err 'no loopback address that is up'
[ "$(wc -l <err)" = 1 ] || fail "more than one line"

# -- /tmp cannot be written, and TMPDIR is not set
read_only='mount -t tmpfs none /tmp && mount -o remount,ro /tmp || exit 99; unset TMPDIR; mount -t tmpfs none /run; '
case $BUILD in
  /tmp/*) ;;
  *) in_bare "$read_only"'env -u XDG_RUNTIME_DIR "'"$dlaunch"'" --nproc 2 sh -c "dirname \$TORCHELASTIC_ERROR_FILE"'
     expect_code 0; expect_err '/tmp cannot be written: the job.s folder is in /'; expect_out '/run/|/dev/shm/' ;;
esac

# -- TMPDIR has no free bytes, or no free inodes
for full in 'size=16k' 'size=1m,nr_inodes=2' 'size=1m,nr_inodes=4'; do
  in_bare "mkdir -p $tmp/small && mount -t tmpfs -o $full none $tmp/small || exit 99
    head -c 1m /dev/zero >$tmp/small/filler 2>/dev/null; TMPDIR=$tmp/small '$dlaunch' --nproc 1 true"
  expect_code 73; expect_err "TMPDIR names $tmp/small, where no room or no inodes are left.*set TMPDIR to another folder.*No space left"
  [ "$(wc -l <err)" = 1 ] || fail "more than one line with $full"
done

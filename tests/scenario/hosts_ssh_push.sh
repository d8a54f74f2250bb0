# Starts by ssh on hosts that lack dlaunch or have another one, elastic jobs that lose a host, and the
# time of a start.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 4
sshd_up 1 2 3 4
rounds=$BUILD/tests/support/rounds_worker

# Host 2 lacks dlaunch and host 3 has another one. The launcher copies its own, and leaves nothing behind.
on 2 mount -t tmpfs none "$BUILD/cli"
printf '#!/bin/sh\necho wrong\n' > other && chmod +x other && on 3 mount --bind other "$BUILD/cli/dlaunch"
launch 1 -v --hosts 'host[1-4]:2' bash -c 'echo I am $RANK on $(hostname); ls $TMPDIR > tmp.$RANK'; expect_code 0
expect_out '^\[2\] I am 2 on host2'; expect_out '^\[5\] I am 5 on host3'
[ "$(grep -c 'pushing dlaunch to host[23]$' err)" = 2 ] && [ "$(grep -c pushing err)" = 2 ] || fail "pushed elsewhere"
grep -h push tmp.* && fail "the binary is still there"
all_clean 1 2 3 4
on 3 umount "$BUILD/cli/dlaunch"

# TMPDIR of host 2 is mounted noexec, so the copy runs from another folder.
on 2 mount -t tmpfs -o noexec none "$(host_dir 2)/tmp"
launch 1 -v --hosts 'host[1-2]' bash -c 'echo I am $RANK on $(hostname)'; expect_code 0
expect_out '^\[1\] I am 1 on host2'; expect_err 'pushing dlaunch to host2$'
[ -z "$(on 2 bash -c 'ls -d /var/tmp/dlaunch-push* /dev/shm/dlaunch-push* 2>/dev/null')" ] || fail "the binary is still there"
all_clean 1 2
on 2 umount "$(host_dir 2)/tmp"; on 2 umount "$BUILD/cli"

# A host need not have the C++ library and fmt, if the launcher contains them.
if ! readelf -d "$BUILD/cli/dlaunch" | grep -qE 'lib(stdc\+\+|fmt)'; then
  libs=$(/sbin/ldconfig -p | awk '/lib(fmt|stdc\+\+|gcc_s)\.so/ { print $NF }' | xargs realpath | sort -u)
  [ "$(echo "$libs" | wc -l)" -ge 3 ] || fail "which libraries there are: $libs"
  for lib in $libs; do on 2 mount --bind /dev/null "$lib"; done
  launch 1 --hosts 'host[1-2]' bash -c 'echo I am $RANK on $(hostname)'; expect_code 0
  expect_out '^\[1\] I am 1 on host2'
  for lib in $libs; do on 2 umount "$lib"; done
  all_clean 1 2
fi

# A nearly equal binary is another one: one byte less, one byte more, another build ID.
id_at=$(LC_ALL=C grep -obUaP -m 1 '\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00' "$BUILD/cli/dlaunch" | head -n 1 | cut -d: -f1)
for h in 2 3 4; do cp "$BUILD/cli/dlaunch" like$h; done
truncate -s -1 like2
echo >> like3
cmp -s like4 "$BUILD/cli/dlaunch" || fail "no copy"
printf '\0\0\0' | dd of=like4 bs=1 seek=$((id_at + 16)) conv=notrunc status=none
! cmp -s like4 "$BUILD/cli/dlaunch" || fail "the build ID is elsewhere"
for h in 2 3 4; do on $h mount --bind like$h "$BUILD/cli/dlaunch"; done
launch 1 -v --hosts 'host[1-4]' true; expect_code 0
[ "$(grep -c 'pushing dlaunch to host[234]$' err)" = 3 ] || fail "what is another binary is used"
for h in 2 3 4; do on $h umount "$BUILD/cli/dlaunch"; rm like$h; done
all_clean 1 2 3 4
launch 1 -v --hosts 'host[1-4]' true; expect_code 0
! grep pushing err || fail "the same binary is pushed"

# In a folder where every user may make folders, dlaunch does not run a binary from another user's folder.
for h in 1 2; do on $h mkdir /dev/shm/theirs && on $h cp "$BUILD/cli/dlaunch" /dev/shm/theirs || fail "no copy"; done
from_there() { run on 1 /dev/shm/theirs/dlaunch --ssh-command "$ssh_command" -v --hosts 'host[1-2]' true; expect_code 0; }
from_there; ! grep pushing err || fail "the same binary is pushed"
on 2 chown 65534 /dev/shm/theirs
from_there; expect_err 'pushing dlaunch to host2$'
for h in 1 2; do on $h rm -r /dev/shm/theirs; done
all_clean 1 2

# The round may be the third, because a worker of the host may be missed before the host is.
some_round_of() { [ "$(grep -cE "in round [23] as [0-9]* of $1," out)" = "$1" ]; }
all_ranks() { [ "$(grep -c "in round $1 as [0-9]* of $2," out)" = "$2" ]; }

# A host is killed: if fewer hosts suffice, the others continue, whether or not the leader runs workers.
for hosts in 'host[1-4]:2' 'host[2-4]:2'; do
  n=$([ "$hosts" = 'host[1-4]:2' ] && echo 4 || echo 3)
  rm -f enough
  start_launch 1 --hosts "$hosts" --nnodes $((n - 1)):$n --max-restarts 5 "$rounds" --until enough --step-ms 10
  wait_until all_ranks 1 $((2 * n)) || fail "no first round"
  host_kill 3
  wait_until some_round_of $((2 * n - 2)) || fail "no round without it"
  touch enough; wait_launch 60; expect_code 0; expect_err 'lost host host3'; all_clean 1 2 4
  sshd_up 3
done
# The job also starts without a host that cannot be reached.
launch 1 --hosts 'host[1-3],nohost' --nnodes 3:4 bash -c 'echo $RANK/$WORLD_SIZE'; expect_code 0
expect_err 'warning: cannot start on 1 of 4 hosts'; expect_out '^\[2\] 2/3'

# A measurement for the log, which checks no time: a start should take about as long as the slowest login alone.
best=0; slowest=0
for i in 1 2 3; do
  launch 1 --hosts 'host[1-4]' true; expect_code 0
  [ $best -gt 0 ] && [ "$ms" -ge $best ] || best=$ms
  for h in 2 3 4; do
    run on 1 $ssh_command -o BatchMode=yes host$h true; expect_code 0
    [ "$ms" -le $slowest ] || slowest=$ms
  done
done
echo "start of true on 4 hosts: $best ms; slowest single login: $slowest ms"

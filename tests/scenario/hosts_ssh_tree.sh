# Started hosts log in to further hosts. Hosts that cannot do it, or are lost while they do it, cost the job
# nothing: the leader logs in itself.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 8
sshd_up 1 2 3 4 5 6 7 8
tree="--ssh-logins 2 --ssh-tree on"
# Each rank says which host has logged in to its own.
where='echo $RANK $(hostname) by $(tr "\0" "\n" < /proc/$(pgrep -o -x dlaunch)/environ | sed -n "s/^SSH_CLIENT=10.77.0.\([0-9]*\) .*/\1/p") $WORD'
# logged_in_by HOSTS: to which hosts one of these has logged in.
logged_in_by() { sed -nE "s/^\[[0-9]*\] [0-9]+ (host[0-9]+) by $1( .*)?$/\1/p" out; }

# Ranks, environment, folder, stdout, stderr and stdin are the same as without a tree.
export WORD="two  words"
launch 1 $tree --hosts 'host[1-8]' bash -c "$where; echo err-\$RANK >&2; cat /proc/[0-9]*/cmdline | tr '\0' ' ' > args.\$RANK; cat \$DLAUNCH_SECRET_FILE > secret.\$RANK"
expect_code 0
for r in 1 2 3 4 5 6 7; do
  expect_out "^\[$r\] $r host$((r + 1)) by [1-8] two words$"; expect_err "^\[$r\] err-$r$"
  cmp -s secret.0 secret.$r || fail "not one secret"
  grep -qF "$(cat secret.0)" args.$r && fail "the secret is in an argument"
  grep -q "two  words" args.$r && fail "the environment is in an argument"
done
[ "$(wc -l < out)" = 8 ] && [ "$(more_than_waits err | wc -l)" = 8 ] || fail "other lines as well"
[ "$(logged_in_by '[2-8]' | wc -l)" -ge 2 ] || fail "no host has logged in to another: $(cat out)"
all_clean 1 2 3 4 5 6 7 8
count='n=$(cksum); echo "$n"'
seq 300000 > numbers; all=$(cksum < numbers)
given=$(on 1 dlaunch --ssh-command "$ssh_command" $tree --hosts 'host[1-8]' --stdin all sh -c "$count" <numbers 2>err | sort | tr '\n' ';')
[ "$given" = "$(for r in 0 1 2 3 4 5 6 7; do printf '[%s] %s;' $r "$all"; done)" ] || fail "stdin: $given"
launch 1 $tree --tls --hosts 'host[1-8]' sh -c 'seq 20000'; expect_code 0
[ "$(wc -l < out)" = 160000 ] || fail "output is lost with --tls: $(wc -l < out) lines"
# By default there is no tree.
launch 1 --ssh-logins 2 --hosts 'host[1-8]' bash -c "$where"; expect_code 0
[ "$(logged_in_by 1 | wc -l)" = 7 ] || fail "another host has logged in: $(cat out)"
# With auto the tree begins once one host has logged in to another. From its third login on, the ssh of the leader
# waits until five others have joined, or one could not log in, so at least three can only come by others. It is
# of that name, and no script: unasked dlaunch has others use no other program.
mkdir slow
cat > slow/standin <<END
#!/bin/bash
asks=; [ "\$1" != -G ] || asks=1
if [ "\$(hostname)" = host1 ] && [ ! "\$asks" ] && ! mkdir logins/1 2>/dev/null && ! mkdir logins/2 2>/dev/null; then
  for ((i = 0; i < 2000; ++i)); do
    ! grep -qE ' [678] of 8 hosts are here|did not start' err || break
    sleep 0.05
  done
fi
exec $ssh_command "\$@"
END
chmod +x slow/standin
cc -o slow/ssh -x c - <<END || fail "no compiler for a stand-in of ssh"
#include <unistd.h>
int main(int argc, char **argv) { argv[argc] = 0; execv("$PWD/slow/standin", argv); return 255; }
END
auto() { # LINE: each rank runs it
  rm -rf logins; mkdir logins
  run on 1 dlaunch -v --ssh-command "$PWD/slow/ssh" --ssh-logins 2 --ssh-tree auto --hosts 'host[1-8]' bash -c "$1"
}
auto "$where"; expect_code 0
more_than_waits err | grep warning && fail 'a warning'
[ "$(logged_in_by '[2-8]' | wc -l)" -ge 3 ] || fail "too few hosts were started by others: $(cat out err)"

# A host that got dlaunch from another one passes it on.
for h in 2 3 4 5 6 7 8; do on $h mount -t tmpfs none "$BUILD/cli"; done
launch 1 -v $tree --hosts 'host[1-8]' bash -c "$where"; expect_code 0
for h in 2 3 4 5 6 7 8; do expect_err "pushing dlaunch to host$h\$"; on $h umount "$BUILD/cli"; done
[ "$(logged_in_by '[2-8]' | wc -l)" -ge 2 ] || fail "no host has logged in to another: $(cat out)"
all_clean 1 2 3 4 5 6 7 8

# The failure of any rank ends the job with its code.
launch 1 $tree --hosts 'host[1-8]' bash -c 'if [ $RANK = 7 ]; then echo last words >&2; exit 7; fi; exec sleep 100'
expect_code 7; expect_err 'rank 7 \(pid [0-9]+ on host host8\) failed first: exit code 7'; expect_err 'last words'
all_clean 1 2 3 4 5 6 7 8

# Hosts without the key: the leader logs in to all others, and says so once.
for h in 2 3 4 5 6 7 8; do on $h mount --bind /dev/null keys/user; done
launch 1 $tree --hosts 'host[1-8]' bash -c "$where"; expect_code 0
[ "$(logged_in_by 1 | wc -l)" = 7 ] || fail "a host without a key has logged in: $(cat out)"
expect_err '^dlaunch: warning: host host[0-9] did not start host host[0-9] \(.*Permission denied.*\): this host does it, '
[ "$(more_than_waits err | wc -l)" = 1 ] || fail "said more than once: $(cat err)"
auto "$where"; expect_code 0
[ "$(logged_in_by 1 | wc -l)" = 7 ] || fail "a host without a key has logged in: $(cat out)"
expect_err '^dlaunch: warning: host host[0-9] did not .*: this host logs in to all further hosts; --ssh-tree off '
[ "$(more_than_waits err | grep -c 'warning: ')" = 1 ] || fail "warned more than once: $(cat err)"
all_clean 1 2 3 4 5 6 7 8
for h in 2 3 4 5 6 7 8; do on $h umount keys/user; done

# A host that no host reaches: today's message and exit code.
launch 1 $tree --hosts 'host[1-7],nohost' touch ran; expect_code 69; [ ! -e ran ] || fail "a worker ran"
expect_err '^dlaunch: cannot start on 1 of 8 hosts:'; expect_err '^dlaunch:   nohost  ssh: Could not resolve hostname nohost: '
# So do hosts that are reached and cannot take part.
mkdir hidden && cp "$(type -P touch)" hidden/prog
for h in 2 3 4 5 6 7 8; do on $h mount -t tmpfs none "$PWD/hidden"; done
launch 1 $tree --hosts 'host[1-8]' ./hidden/prog ran; expect_code 127; [ ! -e ran ] || fail "a worker ran"
expect_err '^dlaunch: cannot start on 7 of 8 hosts:'
[ "$(grep -c "exec './hidden/prog': No such file or directory" err)" = 7 ] || fail "not each of them"
all_clean 1 2 3 4 5 6 7 8

# A host is lost while it logs in to others, which it cannot reach: the leader logs in to them. Those to which
# it has logged in before stay.
cat > slow_ssh <<END
#!/bin/bash
# ssh that waits on other hosts than the leader's until the file "go" is there
[ "\$(hostname)" = host1 ] || { touch "slow.\$(hostname)"; until [ -e go ]; do sleep 0.05; done; }
exec $ssh_command "\$@"
END
chmod +x slow_ssh
rounds=("$BUILD/tests/support/rounds_worker" --steps 100000 --step-ms 20)
# round_of LATER SIZE: some round after LATER had this size, with all its ranks.
round_of() { # LATER SIZE
  round=$(sed -nE "s/.*in round ([0-9]+) as [0-9]+ of $2,.*/\1/p" out | sort -n | tail -1)
  [ "${round:-0}" -gt "$1" ] && [ "$(grep -c "in round $round as [0-9]* of $2," out)" = "$2" ]
}
start_on 1 dlaunch --ssh-command "$PWD/slow_ssh" $tree --hosts 'host[1-8]' --nnodes 7:8 --max-restarts 9 "${rounds[@]}" >out 2>err </dev/null
launcher=$!
wait_until eval '[ -e slow.host2 ] || [ -e slow.host3 ]' || fail "no host logs in to another: $(cat err)"
lost=$(ls slow.host? | head -1); lost=${lost#slow.host}
host_kill "$lost"
wait_until round_of 0 7 || { cat err; fail "no round without host $lost"; }
kill -INT $launcher; wait_launch 60; expect_code 130
for h in 1 2 3 4 5 6 7 8; do [ $h = "$lost" ] || all_clean $h; done
rm -rf "$(host_dir $lost)"/tmp/*; sshd_up "$lost"
touch go

# Hosts that are listed later are started by others, too.
echo host2 > list
start_launch 1 $tree --host-discovery-script 'cat list' --nnodes 1:7 --nproc 1 --max-restarts 9 "${rounds[@]}"
wait_until round_of 0 1 || { cat err; fail "no first round"; }
printf 'host%s\n' 2 3 4 5 6 7 8 > list
wait_until round_of 1 7 || { cat err; fail "the hosts that are listed later do not join"; }
parent() { for h in 2 3 4 5 6 7 8; do on $h pgrep -x ssh >/dev/null && echo $h && return; done; }
[ -n "$(parent)" ] || fail "no host has logged in to another"
kill -INT $launcher; wait_launch 60; expect_code 130; all_clean 1 2 3 4 5 6 7 8

# A host that has logged in to others is lost, and they stay in the job. SIGKILL of the leader ends all.
start_launch 1 $tree --hosts 'host[1-8]' --nnodes 6:8 --max-restarts 9 "${rounds[@]}"
wait_until round_of 0 8 || fail "no first round"
lost=$(parent); [ -n "$lost" ] || fail "no host has logged in to another"
host_kill "$lost"
wait_until round_of 1 7 || { cat err; fail "the others do not continue"; }
[ "$(grep -c 'lost host' err)" = 1 ] || fail "more than host $lost is lost: $(cat err)"
on 1 bash -c 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = dlaunch ] && kill -9 ${p#/proc/}; done' 2>/dev/null
wait_launch 10
for h in 2 3 4 5 6 7 8; do [ $h = "$lost" ] || all_clean $h; done

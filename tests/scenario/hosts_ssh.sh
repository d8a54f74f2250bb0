# One command on one host starts the job on all of them by ssh.
source "$SOURCE/tests/hosts/sshd.sh" || exit 1
hosts_up 4
sshd_up 1 2 3 4
where='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR $(hostname) $(pwd) $WORD'

# Ranks follow the order of the hosts, wherever the leader is in the list. Workers get the environment.
export WORD="two  words"
launch 1 --hosts 'host[1-4]:2' bash -c "$where"; expect_code 0
for r in 0 1 2 3 4 5 6 7; do
  expect_out "^\[$r\] $r/8 $((r % 2))/2 $((r / 2))/4 10.77.0.1 host$((r / 2 + 1)) $PWD two words$"
done
[ "$(wc -l < out)" = 8 ] && [ -z "$(more_than_waits err)" ] || fail "other lines as well"
launch 3 --hosts host2:1,host3:2,root@host1:3 bash -c "$where"; expect_code 0
expect_out '^\[0\] 0/6 0/1 0/3 10.77.0.2 host2 '; expect_out '^\[2\] 2/6 1/2 1/3 10.77.0.2 host3 '
expect_out '^\[5\] 5/6 2/3 2/3 10.77.0.2 host1 '

# The leader's host is not in the list. The hosts come from a file. -n fills them in order.
printf 'host2 slots=3 # first\nhost3 slots=2\nhost4 port=22\n' > list
launch 1 --hostfile list -n 4 bash -c "$where"; expect_code 0
expect_out '^\[2\] 2/4 2/3 0/2 10.77.0.2 host2 '; expect_out '^\[3\] 3/4 0/1 1/2 10.77.0.2 host3 '
launch 1 --hosts host2 --nproc 2 bash -c "$where"; expect_code 0; expect_out '^\[1\] 1/2 1/2 0/1 10.77.0.2 host2 '

# Several programs fill the hosts in order, and each rank runs its own.
launch 1 --hosts 'host[1-3]:2' -n 1 bash -c 'echo a $RANK $(hostname) $V.' \
  : -n 3 -x V=w --chdir / bash -c 'echo b ${program_rank} $RANK $(hostname) $V $PWD'; expect_code 0
expect_out '^\[0\] a 0 host1 \.$'; expect_out '^\[1\] b 0 1 host1 w /$'
expect_out '^\[2\] b 1 2 host2 w /$'; expect_out '^\[3\] b 2 3 host2 w /$'
launch 1 --hosts 'host[2-3]:1' true : bash -c 'exit 7'; expect_code 7; expect_err 'rank 1 \(bash, pid [0-9]* on host host3\) failed first'

# The ranks meet.
launch 1 --hosts "host[2-4]:2" hello; expect_code 0

# stdout and stderr come back. Command lines contain neither the secret nor the environment.
launch 1 --hosts host1,host2 bash -c 'echo to-$RANK; echo err-$RANK >&2; cat /proc/[0-9]*/cmdline | tr "\0" " " > args.$RANK; cat $DLAUNCH_SECRET_FILE > secret.$RANK'
expect_code 0; expect_out '^\[0\] to-0'; expect_out '^\[1\] to-1'; expect_err '^\[1\] err-1'
cmp -s secret.0 secret.1 && [ -s secret.1 ] || fail "not one secret"
grep -qF "$(cat secret.0)" args.1 && fail "the secret is in an argument"
grep -q "two  words" args.1 && fail "the environment is in an argument"
all_clean 1 2 3 4

# dlaunch makes the connection of a login, unless the user's configuration says how to connect.
launch 1 --hosts 'host[1-2]' bash -c '[ $RANK = 1 ] || cat /proc/[0-9]*/cmdline | tr "\0" " " > started'
expect_code 0; grep -q -- ' --ssh-connect %h %p [0-9]* -o ProxyUseFdpass=yes -F .* -- host2 ' started || fail "ssh connects itself"
cat ssh_config - > proxied_config <<END
ProxyCommand bash -c 'echo %h >> proxied; exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3'
END
run on 1 dlaunch --ssh-command "ssh -F $tmp/proxied_config" --hosts 'host[1-3]' true; expect_code 0
[ "$(sort proxied | tr '\n' ' ')" = "host2 host3 " ] || fail "not by the user's ProxyCommand"
# Shells that print words into that connection, because they read .bashrc, and shells that do not exist.
mkdir loud; echo 'echo loud' > loud/.bashrc
for shell in "-u SHLVL SHELL=/bin/bash" "BASH_ENV=loud/.bashrc SHELL=/bin/bash" SHELL=/opt/none/bash SHELL=bash; do
  run on 1 env $shell HOME="$tmp/loud" dlaunch --ssh-command "$ssh_command" --hosts host2,host3 true; expect_code 0
done

# stdin goes to the rank of --stdin on any host, or to all ranks. A rank that does not read it, or ends,
# does not delay the others. The end of stdin reaches the ranks.
count='n=$(cksum); echo "$n"'
seq 300000 > numbers; all=$(cksum < numbers); none=$(cksum < /dev/null)
got() { on 1 dlaunch --ssh-command "$ssh_command" "$@" <numbers 2>err | sort | tr '\n' ';'; }
given=$(got --hosts host2:2 sh -c "$count"); [ "$given" = "[0] $all;[1] $none;" ] || fail "default: $given"
given=$(got --hosts host1,host2 --stdin 1 sh -c "$count"); [ "$given" = "[0] $none;[1] $all;" ] || fail "rank 1: $given"
given=$(got --hosts 'host[1-3]' --stdin all sh -c "[ \$RANK != 1 ] || exit 0; $count")
[ "$given" = "[0] $all;[2] $all;" ] || fail "all: $given"
on 1 dlaunch --ssh-command "$ssh_command" --hosts 'host[2-3]' --stdin all true <numbers 2>err || fail "unread stdin"

# A failure on any host ends the job, with its cause and exit code.
launch 1 --grace 60s --hosts 'host[1-3]:2' bash -c 'if [ $RANK = 3 ]; then echo last words >&2; exit 7; fi; exec sleep 100'
expect_code 7; expect_err 'rank 3 \(pid [0-9]+ on host host2\) failed first: exit code 7'; expect_under 40000
tail -n 1 err | grep -q '^dlaunch:' || fail "the report is not the last"
all_clean 1 2 3

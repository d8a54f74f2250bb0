# Test hosts with an sshd each, and jobs started through them: sourced instead of hosts.sh.
source "$SOURCE/tests/hosts/hosts.sh" || exit 1
[ -x /usr/sbin/sshd ] || skip "sshd is not installed (openssh-server)"

# sshd_up H…: starts an sshd on each of these hosts, with keys made for the test and known host keys.
sshd_up() {
  local h rc; mkdir -p /run/sshd keys
  [ -e keys/user ] || ssh-keygen -q -t ed25519 -N '' -f keys/user || fail "no key"
  cat > ssh_config <<END
IdentityFile $tmp/keys/user
IdentitiesOnly yes
UserKnownHostsFile $tmp/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
END
  for h in "$@"; do
    [ -e "keys/host$h" ] || ssh-keygen -q -t ed25519 -N "" -f "keys/host$h" || fail "no host key"
    echo "host$h,$(host_addr "$h") $(cut -d' ' -f1,2 "keys/host$h.pub")" >> known_hosts
    cat > "keys/sshd$h" <<END
HostKey $tmp/keys/host$h
AuthorizedKeysFile $tmp/keys/user.pub
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
LogLevel ERROR
SetEnv TMPDIR=$(host_dir "$h")/tmp
END
    # Its sessions must not run this machine's user's scripts.
    for rc in ~/.bashrc ~/.ssh/rc; do
      [ ! -e $rc ] || on "$h" mount --bind /dev/null $rc || fail "no private $rc"
    done
    start_on "$h" /usr/sbin/sshd -D -e -f "$tmp/keys/sshd$h" </dev/null 2>"sshd.$h"
    disown
  done
  for h in "$@"; do
    wait_until on "$h" bash -c 'exec 3<>/dev/tcp/localhost/22' 2>/dev/null ||
      fail "no sshd on host $h: $(cat "sshd.$h")"
  done
  ssh_command="ssh -F $tmp/ssh_config"
}
# launch H ARGS…: runs dlaunch on host H to its end, and leaves out, err, $code and $ms as run does.
launch() { local h=$1; shift; run on "$h" dlaunch --ssh-command "$ssh_command" "$@"; }
# start_launch H ARGS…: the same in the background, as $launcher.
start_launch() {
  local h=$1; shift
  start_on "$h" dlaunch --ssh-command "$ssh_command" "$@" >out 2>err </dev/null; launcher=$!
}
wait_launch() { # SECONDS
  wait_until "$1" eval "! alive $launcher 2>/dev/null" || fail "dlaunch does not end"
  wait "$launcher"; code=$?
}
# These hosts have nothing of a job: no process but init and sshd's listener, no file.
all_clean() {
  local h
  for h in "$@"; do
    wait_until 40 eval "[ \"\$(on $h bash -c 'cat /proc/[0-9]*/comm 2>/dev/null' | grep -cvxE 'bash|cat|grep|sshd|enter')\" = 0 ]" ||
      { on "$h" ps -ef >&2; fail "processes are left on host $h"; }
    wait_until 40 eval "[ \"\$(on $h bash -c 'cat /proc/[0-9]*/comm 2>/dev/null' | grep -cx sshd)\" -le 1 ]" ||
      { on "$h" ps -ef >&2; fail "sessions are left on host $h"; }
    [ -z "$(ls -A "$(host_dir "$h")/tmp")" ] || fail "files are left on host $h: $(ls -A "$(host_dir "$h")/tmp")"
  done
}

# Hosts that meet by etcd: with TLS, user and password, and with an etcd that restarts while they train.
source "$SOURCE/tests/hosts/jobs.sh" || exit 1
source "$SOURCE/tests/hosts/etcd.sh" || exit 1
hosts_up 4
rounds=$BUILD/tests/support/rounds_worker

# The first named server does not exist. When etcd is killed, the round continues, and the next round
# waits until etcd is back.
etcd_up 4
rdzv=(--rdzv "${etcd_url/host4/host3:2379,host4}" --secret-file "$PWD/secret" --job-id test)
start_job "1 2 3" --nnodes 3 --nproc 1 --max-restarts 5 "$rounds" --until enough --step-ms 10
wait_until later_round 0 3 || job_fails "no first round"
etcd_kill
on 2 bash -c 'kill -9 $(grep -lx rounds_worker /proc/[0-9]*/comm | cut -d/ -f3)'
read -rt 1 <> <(:)
! later_round 1 3 || job_fails "a round that nobody has written down"
etcd_up 4
wait_until later_round 1 3 || job_fails "no second round when etcd is back"
end_steps 60 3; rm enough
for h in 1 2 3; do nothing_left $h; done
etcd_kill

# With TLS and a user.
command -v openssl >/dev/null || skip "openssl is not installed"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem \
  -days 2 -subj /CN=host4 -addext subjectAltName=DNS:host4 2>/dev/null || fail "no certificate"
etcd_up 4 --cert-file "$PWD/cert.pem" --key-file "$PWD/key.pem"
auth() {
  wait_until on 4 curl -sf --cacert cert.pem -o /dev/null -d "$2" "https://host4:2379/v3/auth/$1" ||
    fail "etcd: auth/$1"
}
auth user/add '{"name":"root","password":"a word"}'
auth role/add '{"name":"root"}'
auth user/grant '{"user":"root","role":"root"}'
auth enable '{}'
rdzv=(--rdzv "$etcd_url" --secret-file "$PWD/secret" --job-id tls)
export ETCDCTL_CACERT=$PWD/cert.pem ETCDCTL_USER=root
start_job "1 2" --nnodes 2 --join-timeout 10s true; wait_job 60 69
grep -q 'etcd host4:2379: ' err.1 || job_fails "a password is asked for, but nobody says so"
ETCDCTL_PASSWORD='a word' start_job "1 2" --nnodes 2 --nproc 1 bash -c 'echo $RANK/$WORLD_SIZE'
wait_job 60 0
[ "$(cat out.* | grep -c '[01]/2$')" = 2 ] || job_fails "not two ranks"
! grep -q 'a word' out.* err.* || job_fails "the password was shown"
ETCDCTL_CACERT= ETCDCTL_PASSWORD='a word' start_job "1" --nnodes 2 --join-timeout 10s true; wait_job 60 69
grep -qi 'certificate' err.1 || job_fails "an unknown certificate is believed"

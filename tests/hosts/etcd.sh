# A real etcd on a test host: sourced after hosts.sh or jobs.sh. Skips if it is not installed.
command -v etcd >/dev/null || skip "etcd (package etcd-server) is not installed"
# etcd_up H [ARGS…]: starts etcd on host H and sets etcd_url. After etcd_kill the new etcd has the same
# data.
etcd_up() {
  local h=$1 scheme=http at; shift
  case "$*" in *--cert-file*) scheme=https ;; esac
  at=$scheme://$(host_addr "$h"):2379
  etcd_url=etcd${scheme#http}://host$h:2379/test
  start_on "$h" etcd --data-dir "$(host_dir "$h")/etcd" --listen-client-urls "$at" \
    --advertise-client-urls "$at" --listen-peer-urls http://127.0.0.1:2380 --log-level error \
    --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380 \
    "$@" >>"etcd.$h" 2>&1 </dev/null
  etcd_pid=$!
}
etcd_kill() { kill -9 "$etcd_pid"; wait "$etcd_pid" 2>/dev/null; }

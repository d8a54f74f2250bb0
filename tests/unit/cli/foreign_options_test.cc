// dlaunch translates, accepts or refuses every option of the launchers that it replaces. An option
// takes as many words as in its launcher. The lists follow each launcher's own --help or parser.
#include "cli/foreign_options.h"

#include <set>

#include <doctest/doctest.h>

#include "base/text.h"
#include "cli/option_table.h"
#include "cli/scanner.h"

using namespace dlaunch;

namespace {

using Words = std::vector<std::string>;

// "name/2": so many words follow, "/=": one may follow '='. Several spellings that are alike are
// listed each.
struct Expected {
  std::string_view launcher;
  Fate fate;
  std::string_view options;
};

constexpr Expected kExpected[] = {
    // torchrun 2.15, torch/distributed/run.py
    {"torchrun", Fate::ours,
     "nnodes/1 nproc-per-node/1 rdzv-backend/1 rdzv-endpoint/1 rdzv-id/1 rdzv-conf/1 standalone/0 "
     "max-restarts/1 monitor-interval/1 role/1 m/0 module/0 no-python/0 run-path/0 log-dir/1 r/1 "
     "redirects/1 t/1 tee/1 log-line-prefix-template/1 local-ranks-filter/1 node-rank/1 "
     "master-addr/1 master-port/1 local-addr/1 numa-binding/1 shutdown-timeout/1 "
     "virtual-local-rank/0 h/0 help/0"},
    {"torchrun", Fate::nothing,
     "start-method/1 event-log-handler/1 logs-specs/1 signals-to-handle/1 use-env/0"},
    {"torchrun", Fate::refused,
     "duplicate-stdout-filters/1 duplicate-stderr-filters/1 print-completion/1"},
    // accelerate 1.15, accelerate/commands/launch.py
    {"accelerate", Fate::ours,
     "config-file/1 quiet/0 q/0 cpu/0 multi-gpu/0 mixed-precision/1 num-processes/1 num-machines/1 "
     "num-cpu-threads-per-process/1 enable-cpu-affinity/0 dynamo-backend/1 dynamo-mode/1 "
     "dynamo-use-fullgraph/0 dynamo-use-dynamic/0 dynamo-use-regional-compilation/0 gpu-ids/1 "
     "machine-rank/1 main-process-ip/1 main-process-port/1 t/1 tee/1 log-dir/1 role/1 "
     "rdzv-backend/1 rdzv-conf/1 max-restarts/1 monitor-interval/1 m/0 module/0 no-python/0 env/1 "
     "debug/1 mpirun-hostfile/1"},
    {"accelerate", Fate::nothing, "same-network/0"},
    {"accelerate", Fate::refused,
     "tpu/0 use-deepspeed/0 use-fsdp/0 use-parallelism-config/0 use-megatron-lm/0 tpu-cluster/0 "
     "no-tpu-cluster/0 tpu-use-sudo/0 vm/1 main-training-function/1 downcast-bf16/0 "
     "deepspeed-config-file/1 zero-stage/1 offload-optimizer-device/1 offload-param-device/1 "
     "offload-optimizer-nvme-path/1 offload-param-nvme-path/1 gradient-accumulation-steps/1 "
     "gradient-clipping/1 zero3-init-flag/1 zero3-save-16bit-model/1 deepspeed-hostfile/1 "
     "deepspeed-exclusion-filter/1 deepspeed-inclusion-filter/1 deepspeed-multinode-launcher/1 "
     "deepspeed-moe-layer-cls-names/1 fsdp-version/1 fsdp-offload-params/1 fsdp-min-num-params/1 "
     "fsdp-sharding-strategy/1 fsdp-reshard-after-forward/1 fsdp-auto-wrap-policy/1 "
     "fsdp-transformer-layer-cls-to-wrap/1 fsdp-backward-prefetch/1 fsdp-state-dict-type/1 "
     "fsdp-forward-prefetch/1 fsdp-use-orig-params/1 fsdp-cpu-ram-efficient-loading/1 "
     "fsdp-sync-module-states/1 fsdp-activation-checkpointing/1 "
     "fsdp-activation-checkpointing-offload/1 megatron-lm-tp-degree/1 "
     "megatron-lm-use-custom-fsdp/1 megatron-lm-no-load-optim/1 megatron-lm-eod-mask-loss/1 "
     "megatron-lm-overlap-cpu-optimizer-d2h-h2d/1 megatron-lm-no-save-optim/1 "
     "megatron-lm-optimizer-cpu-offload/1 megatron-lm-use-precision-aware-optimizer/1 "
     "megatron-lm-decoder-last-pipeline-num-layers/1 megatron-lm-pp-degree/1 "
     "megatron-lm-num-micro-batches/1 megatron-lm-sequence-parallelism/1 "
     "megatron-lm-recompute-activations/1 megatron-lm-use-distributed-optimizer/1 "
     "megatron-lm-gradient-clipping/1 megatron-lm-recompute-granularity/1 "
     "megatron-lm-recompute-method/1 megatron-lm-recompute-num-layers/1 "
     "megatron-lm-attention-backend/1 megatron-lm-expert-model-parallel-size/1 "
     "megatron-lm-context-parallel-size/1 megatron-lm-attention-dropout/1 "
     "megatron-lm-hidden-dropout/1 megatron-lm-attention-softmax-in-fp32/1 "
     "megatron-lm-expert-tensor-parallel-size/1 megatron-lm-calculate-per-token-loss/1 "
     "megatron-lm-use-rotary-position-embeddings/1 fp8-backend/1 fp8-use-autocast-during-eval/0 "
     "fp8-margin/1 fp8-interval/1 fp8-format/1 fp8-amax-history-len/1 fp8-amax-compute-algo/1 "
     "fp8-override-linear-precision/1 fp8-opt-level/1 fp8-enable-fsdp-float8-all-gather/1 "
     "fp8-pad-inner-dim/1 aws-access-key-id/1 aws-secret-access-key/1 "
     "parallelism-config-dp-replicate-size/1 parallelism-config-dp-shard-size/1 "
     "parallelism-config-tp-size/1 parallelism-config-cp-size/1 parallelism-config-cp-backend/1 "
     "parallelism-config-cp-comm-strategy/1 parallelism-config-sp-size/1 "
     "parallelism-config-sp-backend/1 parallelism-config-sp-seq-length/1 "
     "parallelism-config-sp-seq-length-is-variable/1 parallelism-config-sp-attn-implementation/1"},
    // deepspeed, deepspeed/launcher/runner.py
    {"deepspeed", Fate::ours,
     "H/1 hostfile/1 i/1 include/1 exclude/1 num-nodes/1 num-gpus/1 num-accelerators/1 "
     "master-port/1 master-addr/1 node-rank/1 module/0 no-python/0 enable-each-rank-log/1 "
     "bind-cores-to-rank/0 ssh-port/1 log-level/1 q/0 quiet/0"},
    {"deepspeed", Fate::nothing, "launcher/1 no-local-rank/0 no-ssh-check/0 force-multi/0"},
    {"deepspeed", Fate::refused,
     "e/1 launcher-args/1 no-ssh/0 save-pid/0 autotuning/1 bind-core-list/1 venv-script/1"},
    // horovodrun 0.28, horovod/runner/launch.py
    {"horovodrun", Fate::ours,
     "v/0 np/1 num-proc/1 cb/0 check-build/0 start-timeout/1 network-interfaces/1 "
     "network-interface/1 output-filename/1 verbose/0 config-file/1 p/1 ssh-port/1 i/1 "
     "ssh-identity-file/1 fusion-threshold-mb/1 cycle-time-ms/1 cache-capacity/1 "
     "hierarchical-allreduce/0 no-hierarchical-allreduce/0 hierarchical-allgather/0 "
     "no-hierarchical-allgather/0 torus-allreduce/0 no-torus-allreduce/0 autotune/0 no-autotune/0 "
     "autotune-log-file/1 autotune-warmup-samples/1 autotune-steps-per-sample/1 "
     "autotune-bayes-opt-max-samples/1 autotune-gaussian-process-noise/1 min-np/1 min-num-proc/1 "
     "max-np/1 max-num-proc/1 elastic-timeout/1 reset-limit/1 timeline-filename/1 "
     "timeline-mark-cycles/0 no-timeline-mark-cycles/0 no-stall-check/0 "
     "stall-check-warning-time-seconds/1 stall-check-shutdown-time-seconds/1 "
     "mpi-threads-disable/0 no-mpi-threads-disable/0 num-nccl-streams/1 thread-affinity/1 "
     "gloo-timeout-seconds/1 log-level/1 log-with-timestamp/0 log-without-timestamp/0 "
     "prefix-timestamp/0 prefix-output-with-timestamp/0 log-hide-timestamp/0 "
     "no-log-hide-timestamp/0 H/1 hosts/1 hostfile/1 host-discovery-script/1"},
    {"horovodrun", Fate::nothing,
     "disable-cache/0 stall-check/0 tcp/0 gloo/0 mpi/= blacklist-cooldown-range/2"},
    {"horovodrun", Fate::refused, "jsrun/0 mpi-args/1 binding-args/1 slots-per-host/1 slots/1"},
    // mpirun of Open MPI 4.1, and options that 5.0 has beside them
    {"mpirun", Fate::ours,
     "allow-run-as-root/0 bind-to/1 bind-to-none/0 bind-to-core/0 bind-to-socket/0 c/1 np/1 n/1 "
     "N/1 debug-devel/0 d/0 debug-daemons/0 leave-session-attached/0 show-progress/0 "
     "default-hostfile/1 display-allocation/0 display-devel-allocation/0 display-devel-map/0 "
     "display-diffable-map/0 display-map/0 display-topo/0 display/1 do-not-launch/0 h/0 help/0 H/1 "
     "host/1 hostfile/1 launch-agent/1 machinefile/1 map-by/1 max-restarts/1 mca/2 gmca/2 "
     "npernode/1 npersocket/1 pernode/0 ppr/1 output-filename/1 oversubscribe/0 q/0 quiet/0 "
     "report-bindings/0 stdin/1 tag-output/0 timeout/1 timestamp-output/0 v/0 verbose/0 V/0 "
     "version/0 wd/1 wdir/1 x/1 omca/2 gomca/2 pmixmca/2 gpmixmca/2 gpu-support/1"},
    {"mpirun", Fate::nothing,
     "bycore/0 byslot/0 disable-recovery/0 do-not-resolve/0 enable-instant-on-support/0 "
     "fwd-mpirun-port/0 noprefix/0 no-app-prefix/0 novm/0 personality/1 rank-by/1 "
     "report-child-jobs-separately/0 report-state-on-timeout/0 use-hwthread-cpus/0 use-regexp/0 "
     "stream-buffering/1 forward-signals/1 no-ready-msg/0 daemonize/0 set-sid/0"},
    {"mpirun", Fate::refused,
     "am/1 tune/1 bynode/0 cf/1 cartofile/1 continuous/0 cpu-list/1 cpu-set/1 cpus-per-proc/1 "
     "cpus-per-rank/1 debug-daemons-file/0 tv/0 dvm/0 enable-recovery/0 "
     "get-stack-traces/0 hnp/1 index-argv-by-rank/0 max-vm-size/1 merge-stderr-to-stdout/0 "
     "nolocal/0 nooversubscribe/0 ompi-server/1 output-proctable/0 path/1 prefix/1 "
     "preload-files/1 preload-binary/0 s/0 report-events/1 report-pid/1 report-uri/1 rf/1 "
     "rankfile/1 set-cwd-to-session-dir/0 xml/0 xml-file/1 xterm/1 prtemca/2 app-prefix/1 "
     "pmix-prefix/1 with-ft/1 dvm-uri/1 keepalive/1 pset/1 singleton/1 system-server/0 "
     "add-host/1 add-hostfile/1 runtime-options/1 rto/1 initial-errhandler/1 memory-alloc-kinds/1 "
     "stop-on-exec/0 stop-in-init/0 stop-in-app/0 exec-agent/1 parseable/0 parsable/0"},
    // mpiexec of MPICH 4.0 (hydra), and Intel MPI's names
    {"mpiexec", Fate::ours,
     "genv/2 f/1 hosts/1 wdir/1 n/1 np/1 launcher-exec/1 bootstrap-exec/1 bind-to/1 map-by/1 "
     "verbose/0 info/0 iface/1 ppn/1 perhost/1 prepend-rank/0 prepend-pattern/1 localhost/1 "
     "gpus-per-proc/1 print-rank-map/0"},
    {"mpiexec", Fate::nothing,
     "genvlist/1 genvall/0 envlist/1 envall/0 launcher/1 bootstrap/1 disable-x/0 rmk/1 topolib/1 "
     "membind/1 demux/1 print-all-exitcodes/0 disable-hostname-propagation/0 pmi-port/0 "
     "enable-auto-cleanup/0"},
    {"mpiexec", Fate::refused,
     "genvnone/0 envnone/0 genvexcl/1 enable-x/0 profile/= outfile-pattern/1 errfile-pattern/1 "
     "nameserver/1 disable-auto-cleanup/0 order-nodes/1 usize/1 skip-launch-node/0"},
    // srun of Slurm 22.05, and options that later ones have
    {"srun", Fate::ours,
     "chdir/1 D/1 export/1 i/1 input/1 l/0 label/0 n/1 ntasks/1 ntasks-per-node/1 N/1 nodes/1 "
     "output/1 oversubscribe/0 q/0 Q/0 quiet/0 signal/1 T/1 threads/1 t/1 time/1 v/0 verbose/0 "
     "w/1 nodelist/1 ntasks-per-core/1 ntasks-per-socket/1 gpus/1 gpus-per-task/1 cpu-bind/1 "
     "h/0 help/0 usage/0 V/0 version/0 m/0 c/1 p/1 ntasks-per-gpu/1 H/1 x/1 exclude/1 r/1"},
    {"srun", Fate::nothing,
     "comment/1 E/= preserve-env/= J/1 job-name/1 K/= kill-on-bad-exit/= distribution/1 "
     "mail-type/1 mail-user/1 mcs-label/1 mpi/= O/0 overcommit/0 overlap/= propagate/= "
     "quit-on-interrupt/= slurmd-debug/1 spread-job/0 u/0 unbuffered/0 use-min-nodes/0 W/1 wait/1 "
     "wckey/1 X/= disable-status/= exact/= resv-ports/= mem-bind/1 hint/1 treewidth/1"},
    {"srun", Fate::refused,
     "A/1 account/1 acctg-freq/1 bb/1 bbf/1 bcast/= bcast-exclude/1 b/1 begin/1 cpus-per-task/1 "
     "compress/= container/1 cpu-freq/1 dependency/1 deadline/1 delay-boot/1 e/1 error/1 "
     "epilog/1 gres/1 gres-flags/1 hold/0 I/= immediate/= jobid/1 k/= no-kill/= L/1 licenses/1 "
     "M/1 clusters/1 nice/= o/1 het-group/1 partition/1 power/1 priority/1 prolog/1 profile/= "
     "pty/= qos/1 reboot/0 relative/1 S/1 core-spec/1 send-libs/= switches/1 task-epilog/1 "
     "task-prolog/1 thread-spec/1 time-min/1 cluster-constraint/1 contiguous/0 C/1 constraint/1 "
     "mem/1 mincpus/1 reservation/1 tmp/1 Z/0 no-allocate/0 exclusive/= mem-per-cpu/1 "
     "sockets-per-node/1 cores-per-socket/1 threads-per-core/1 B/1 extra-node-info/1 "
     "cpus-per-gpu/1 G/1 gpu-bind/1 gpu-freq/1 gpus-per-node/1 gpus-per-socket/1 mem-per-gpu/1 "
     "accel-bind/1 network/1 open-mode/1 prefer/1 x11/= tres-bind/1 tres-per-task/1 segment/1"},
};

int words_of(std::string_view text) {
  return text == "=" ? kAfterEquals : std::stoi(std::string(text));
}

struct Found {
  int words = 0;
  Fate fate = Fate::ours;
  bool ok = false;
};

// Ours come first, as in the scanner.
Found lookup(std::string_view name) {
  if (const OptionRow* row = find_option(name)) {
    return {row->value.empty() ? 0 : 1, Fate::ours, true};
  }
  const ForeignOption* option = find_foreign(name).option;
  return option == nullptr ? Found() : Found{option->values, option->fate, true};
}

std::string error_of(const Words& words) {
  auto line = scan_line(words);
  return line ? "accepted" : line.error().what;
}

// "env=A=1 nproc=2 | program"
std::string taken(const Words& words) {
  auto line = scan_line(words);
  if (!line) return line.error().what;
  std::string text;
  for (const auto& option : line->options) {
    text += std::string(option.row->name) + (option.value.empty() ? "" : "=" + option.value) + " ";
  }
  text += "|";
  for (const auto& word : line->program) text += " " + word;
  return text;
}

std::string notes(const Words& words) {
  auto line = scan_line(words);
  REQUIRE_MESSAGE(line, (line ? "" : line.error().what));
  std::string text;
  for (const auto& note : line->notes) text += note + "\n";
  return text;
}

}  // namespace

TEST_CASE("every option of other launchers has its row, and takes its number of words") {
  for (const Expected& row : kExpected) {
    for (const auto item : split_words(row.options, ' ')) {
      const auto slash = item.find('/');
      const auto name = item.substr(0, slash);
      CAPTURE(row.launcher);
      CAPTURE(name);
      const Found found = lookup(name);
      CHECK_MESSAGE(found.ok, "no launcher's and not ours");
      CHECK(found.words == words_of(item.substr(slash + 1)));
      CHECK(found.fate == row.fate);
    }
  }
}

TEST_CASE("every row can be reached, and each has its text") {
  std::set<std::string_view> seen;
  for (const ForeignTable& table : foreign_tables()) {
    for (const ForeignOption& option : table.options) {
      for (const auto name : split_words(option.names, ' ')) {
        CAPTURE(name);
        CHECK_MESSAGE((find_option(name) == nullptr || name == "env"), "ours hides it");
        CHECK_MESSAGE(seen.insert(name).second, "there is one before it");
      }
      CHECK_FALSE(option.text.empty());
    }
  }
}

TEST_CASE("the words that replace another launcher's option are options of dlaunch") {
  for (const ForeignTable& table : foreign_tables()) {
    for (const ForeignOption& option : table.options) {
      if (option.translate != nullptr || option.fate != Fate::ours) continue;
      const std::string name(split_words(option.names, ' ').front());
      CAPTURE(name);
      Words words = {"-" + name};
      for (int i = 0; i < option.values; ++i) words.push_back("1");
      auto line = scan_line(words);
      REQUIRE_MESSAGE(line, (line ? "" : line.error().what));
      REQUIRE_FALSE(line->options.empty());
      for (const GivenOption& given : line->options) {
        REQUIRE(given.row != nullptr);
        CHECK(given.row->value.empty() == given.value.empty());
        CHECK(given.spelled == "-" + name);
      }
    }
  }
}

TEST_CASE("arguments of accepted options are not the program") {
  CHECK(taken({"--start-method", "spawn", "a"}) == "| a");
  CHECK(taken({"--event_log_handler=console", "--logs-specs", "default", "a"}) == "| a");
  CHECK(taken({"--signals-to-handle", "SIGTERM,SIGUSR1", "a"}) == "| a");
  CHECK(taken({"--blacklist-cooldown-range", "1", "2", "a"}) == "| a");
  CHECK(taken({"-rmk", "slurm", "-demux", "poll", "a"}) == "| a");
  CHECK(taken({"-rmk", "pbs", "a"}) == "| a");
  CHECK(taken({"-K", "--kill-on-bad-exit=1", "-u", "a"}) == "| a");
  CHECK(taken({"--mpi=pmix", "a"}) == "| a");
  CHECK(taken({"--use-env", "--use_hwthread_cpus", "a"}) == "| a");
}

TEST_CASE("options with a meaning become options of dlaunch") {
  CHECK(taken({"-iface", "eth0", "a"}) == "interface=eth0 | a");
  CHECK(taken({"--map-by", "ppr:2:node", "a"}) == "nproc=2 | a");
  CHECK(taken({"--map-by", "ppr:4:socket:pe=2", "a"}).find("equal shares") != std::string::npos);
  CHECK(taken({"--map-by", "ppr:4:package", "a"}) == "nproc=4:socket | a");
  CHECK(taken({"--map-by", "slot", "a"}) == "| a");
  CHECK(taken({"-r", "0:1,1:2", "a"}) == "redirects=0:1,1:2 | a");
  CHECK(taken({"--mca", "btl", "tcp,self", "a"}) == "env=OMPI_MCA_btl=tcp,self | a");
  CHECK(taken({"-genv", "A", "1", "-genv", "B=2", "a"}) == "env=A=1 env=B=2 | a");
  CHECK(taken({"-env", "A", "1", "a"}) == "env=A=1 | a");
  CHECK(taken({"-N1", "-n2", "-K1", "a"}).ends_with("| a"));
  CHECK(taken({"--fusion-threshold-mb", "32", "a"}) == "env=HOROVOD_FUSION_THRESHOLD=33554432 | a");
  CHECK(taken({"--timeline-filename", "t.json", "--autotune", "a"}) ==
        "env=HOROVOD_TIMELINE=t.json env=HOROVOD_AUTOTUNE=1 | a");
  CHECK(taken({"--multi_gpu", "--num_processes=4", "--num_machines", "2", "--machine_rank", "1",
               "--main_process_ip", "h", "--main_process_port", "5", "a"}) ==
        "multi-gpu np=4 nnodes=2 node-rank=1 master-addr=h master-port=5 | a");
  CHECK(taken({"--num_gpus", "2", "--num_nodes=2", "--include", "h:0,1", "a"}) ==
        "nproc=2 nnodes=2 include=h:0,1 | a");
  CHECK(taken({"--mixed_precision", "bf16", "--dynamo_backend", "inductor", "a"}) ==
        "env=ACCELERATE_MIXED_PRECISION=bf16 env=ACCELERATE_DYNAMO_BACKEND=INDUCTOR | a");
  CHECK(taken({"--export=ALL,A=1", "--nodes=2-4", "--time=1:30:00", "a"}) ==
        "env=A=1 nnodes=2:4 timeout=5400s | a");
  CHECK(taken({"--cpu-bind=verbose,cores", "--signal=B:USR1@120", "a"}) ==
        "report-bindings bind=core end-signal=USR1@120s | a");
  CHECK(taken({"-prepend-pattern", "%r@%h: ", "a"}) ==
        "log-line-prefix-template=${rank}@${hostname}:  | a");
  CHECK(taken({"-p", "2222", "a"}) == "ssh-port=2222 | a");
  CHECK(taken({"-N2", "-p22", "a"}) == "nproc=2 ssh-port=22 | a");
}

TEST_CASE("torchrun's rendezvous settings become options of dlaunch") {
  CHECK(taken({"--rdzv-conf", "join_timeout=90,last_call_timeout=5", "a"}) ==
        "join-timeout=90000ms | a");
  CHECK(taken({"--rdzv_conf=timeout=900", "a"}) == "join-timeout=900000ms | a");
  CHECK(taken({"--rdzv-conf", "timeout=900,join_timeout=60,read_timeout=60", "a"}) ==
        "join-timeout=60000ms | a");
  CHECK(taken({"--rdzv-conf", "keep_alive_interval=2,keep_alive_max_attempt=4", "a"}) ==
        "host-timeout=8000ms | a");
  CHECK(notes({"--rdzv-conf", "last_call_timeout=5", "a"})
            .find("last_call_timeout changes nothing") != std::string::npos);
  CHECK(error_of({"--rdzv-conf", "join_timout=5", "a"}) ==
        "'--rdzv-conf' of torchrun: 'join_timout' is not a key that dlaunch knows; did you mean "
        "'join_timeout'?");
  CHECK(error_of({"--rdzv-conf", "join_timeout", "a"}).find("is not KEY=VALUE") !=
        std::string::npos);
  CHECK(error_of({"--rdzv-conf", "join_timeout=soon", "a"}).find("is not a number of seconds") !=
        std::string::npos);
}

TEST_CASE("an option that cannot be honoured is refused with a reason and an alternative") {
  CHECK(error_of({"--signals-to-handle", "SIGTERM,SIGALRM", "a"}).find("not SIGALRM") !=
        std::string::npos);
  CHECK(error_of({"--logs-specs", "mine", "a"}).find("use --log-dir") != std::string::npos);
  CHECK(error_of({"--map-by", "node", "a"}).find("'node' is another order") != std::string::npos);
  CHECK(error_of({"--mca", "rmaps_base_x", "1", "a"}).find("parameter of mpirun itself") !=
        std::string::npos);
  CHECK(error_of({"--gres=gpu:4", "a"}).find("salloc or sbatch") != std::string::npos);
  CHECK(error_of({"-p", "gpuqueue", "a"}).find("salloc or sbatch") != std::string::npos);
  CHECK(error_of({"--time=soon", "a"}).find("is not MINUTES") != std::string::npos);
  CHECK(error_of({"--mca", "btl"}) == "--mca needs two values");
  CHECK(error_of({"--use-env=1", "a"}) == "--use-env takes no value");
}

TEST_CASE("where two launchers differ, torchrun's or mpirun's meaning holds, and dlaunch says so") {
  auto line = scan_line({"-N", "2", "a"});
  REQUIRE(line);
  REQUIRE(line->warnings.size() == 1);
  CHECK(line->warnings[0] ==
        "-N: 2 workers on each host, as mpirun means it; srun's -N is --nnodes");
  CHECK(taken({"-c", "4", "a"}) == "np=4 | a");
  CHECK(taken({"-t", "3", "a"}) == "tee=3 | a");  // torchrun's, not srun's time
}

TEST_CASE("with -v dlaunch says once what it did with each option") {
  CHECK(notes({"--pernode", "a"}) == "'--pernode' of mpirun is taken as --nproc=1\n");
  CHECK(notes({"--start-method", "fork", "a"}).find("'--start-method' of torchrun is accepted: ") ==
        0);
}

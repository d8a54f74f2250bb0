// torchrun's options, from torch/distributed/run.py, and those of `accelerate launch`, from
// accelerate/commands/launch.py.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include "base/nearest.h"
#include "base/units.h"
#include "cli/foreign_tables.h"

namespace dlaunch {
namespace {

using Values = std::vector<std::string>;

// "3" or "2.5" seconds, as in torchrun's parser.
Result<double> seconds_of(std::string_view key, const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(seconds >= 0) || seconds > 1e9) {
    return not_here("{}: '{}' is not a number of seconds", key, text);
  }
  return seconds;
}

std::string in_milliseconds(double seconds) {
  return fmt::format("{}ms", static_cast<long long>(seconds * 1000));
}

// The meaning of its keys here, "=" for those without one.
constexpr std::string_view kRdzvKeys[] = {"join_timeout",
                                          "timeout",
                                          "keep_alive_interval",
                                          "keep_alive_max_attempt",
                                          "rank",
                                          "read_timeout",
                                          "last_call_timeout",
                                          "close_timeout",
                                          "heartbeat_timeout",
                                          "is_host",
                                          "store_type",
                                          "use_libuv",
                                          "min_nodes",
                                          "max_nodes",
                                          "local_addr"};

Result<std::map<std::string, std::string>> rdzv_keys(const std::string& text) {
  std::map<std::string, std::string> found;
  for (const auto item : split_words(text, ',')) {
    const auto equals = item.find('=');
    if (equals == item.npos || equals == 0 || equals + 1 == item.size()) {
      return not_here("'{}' is not KEY=VALUE", item);
    }
    const std::string key(item.substr(0, equals));
    if (std::find(std::begin(kRdzvKeys), std::end(kRdzvKeys), key) == std::end(kRdzvKeys)) {
      return not_here("'{}' is not a key that dlaunch knows{}", key, did_you_mean(key, kRdzvKeys));
    }
    found[key] = item.substr(equals + 1);
  }
  return found;
}

// A host is lost after so many silent beats; torchrun's defaults are 5 s and 3 beats.
Result<void> add_host_timeout(const std::map<std::string, std::string>& keys, Meaning& meaning) {
  const auto interval = keys.find("keep_alive_interval");
  const auto attempts = keys.find("keep_alive_max_attempt");
  if (interval == keys.end() && attempts == keys.end()) return {};
  auto seconds = seconds_of("keep_alive_interval", interval == keys.end() ? "5" : interval->second);
  if (!seconds) return seconds.error();
  auto beats = parse_int(attempts == keys.end() ? "3" : attempts->second, 1, 10000,
                         "keep_alive_max_attempt");
  if (!beats) return beats.error();
  meaning.words.push_back("--host-timeout=" + in_milliseconds(*seconds * *beats));
  return {};
}

Result<Meaning> rdzv_conf(const Values& values) {
  auto keys = rdzv_keys(values[0]);
  if (!keys) return keys.error();
  Meaning meaning;
  const auto join =
      keys->contains("join_timeout") ? keys->find("join_timeout") : keys->find("timeout");
  if (join != keys->end()) {
    auto seconds = seconds_of(join->first, join->second);
    if (!seconds) return seconds.error();
    if (*seconds == 0) return not_here("{}: 0 leaves no time for hosts to join", join->first);
    meaning.words.push_back("--join-timeout=" + in_milliseconds(*seconds));
  }
  if (auto done = add_host_timeout(*keys, meaning); !done) return done.error();
  if (keys->contains("rank")) meaning.words.push_back("--node-rank=" + keys->at("rank"));
  if (keys->contains("local_addr"))
    meaning.words.push_back("--interface=" + keys->at("local_addr"));
  std::string idle;
  for (const auto key : {"read_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout",
                         "is_host", "store_type", "use_libuv", "min_nodes", "max_nodes"}) {
    if (keys->contains(key)) idle += (idle.empty() ? "" : ", ") + std::string(key);
  }
  if (!idle.empty()) {
    meaning.note = fmt::format(
        "{} changes nothing: dlaunch's agents tell each other when hosts join and leave", idle);
  }
  return meaning;
}

// The keeper relays these signals, and SIGTSTP and SIGCONT, too.
constexpr std::string_view kForwarded[] = {"SIGTERM", "SIGINT",  "SIGHUP",
                                           "SIGQUIT", "SIGUSR1", "SIGUSR2"};

Result<Meaning> signals_to_handle(const Values& values) {
  for (const auto word : split_words(values[0], ',')) {
    std::string name(word);
    std::erase(name, ' ');
    if (!name.starts_with("SIG")) name = "SIG" + name;
    if (std::find(std::begin(kForwarded), std::end(kForwarded), name) == std::end(kForwarded)) {
      return not_here(
          "dlaunch passes on SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, and not {}; "
          "leave it out",
          name);
    }
  }
  return Meaning{.note = "dlaunch passes these signals on in any case"};
}

Result<Meaning> start_method(const Values& values) {
  for (const char* known : {"spawn", "fork", "forkserver"}) {
    if (values[0] == known) {
      return Meaning{.note =
                         "each worker is a program of its own, not a child made by Python's "
                         "multiprocessing"};
    }
  }
  return not_here("'{}' is not one of spawn, fork, forkserver", values[0]);
}

Result<Meaning> event_log_handler(const Values& values) {
  if (values[0] == "null" || values[0] == "console") {
    return Meaning{.note = "-v shows what dlaunch does and --error-file writes how the job ended"};
  }
  return not_here(
      "dlaunch loads no Python handlers; --error-file writes how the job ended as JSON");
}

Result<Meaning> logs_specs(const Values& values) {
  if (values[0] == "default") return Meaning{.note = "dlaunch's own log files are the default"};
  return not_here("dlaunch loads no Python classes; use --log-dir, --redirects and --tee");
}

Result<Meaning> gpu_ids(const Values& values) {
  if (values[0] == "all") return Meaning{.note = "workers see all GPUs in any case"};
  return Meaning{.words = {"--env=CUDA_VISIBLE_DEVICES=" + values[0]}};
}

// Accelerate reads the names of its backends in capitals.
Result<Meaning> dynamo_backend(const Values& values) {
  std::string name = values[0];
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return Meaning{.words = {"--env=ACCELERATE_DYNAMO_BACKEND=" + name}};
}

constexpr ForeignOption kTorchrun[] = {
    {"rdzv-conf", 1, Fate::ours,
     "join_timeout or timeout is --join-timeout, keep_alive_interval times keep_alive_max_attempt "
     "is --host-timeout, rank is --node-rank; the other keys change nothing",
     rdzv_conf},
    {"local-addr", 1, Fate::ours, "--interface={}"},
    {"signals-to-handle", 1, Fate::nothing,
     "dlaunch passes on SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 in any case, and "
     "refuses others",
     signals_to_handle},
    {"start-method", 1, Fate::nothing,
     "each worker is a program of its own, not a child made by Python's multiprocessing",
     start_method},
    {"event-log-handler", 1, Fate::nothing,
     "null and console say what dlaunch does in any case; it refuses others", event_log_handler},
    {"logs-specs", 1, Fate::nothing,
     "default says what dlaunch does in any case; it refuses others", logs_specs},
    {"use-env", 0, Fate::nothing, "workers read LOCAL_RANK from the environment in any case"},
    {"duplicate-stdout-filters duplicate-stderr-filters", 1, Fate::refused,
     "dlaunch filters no lines; use --log-dir and grep its files"},
    {"print-completion", 1, Fate::refused,
     "dlaunch installs its completions; there is nothing to print"},
};

constexpr std::string_view kNoPlugins =
    "dlaunch sets no variables for Accelerate's plugins; give the plugin to Accelerator() in the "
    "program, or set the variables that it reads with --env";
constexpr std::string_view kNoTpu = "dlaunch starts no TPU workers; use accelerate launch for them";

constexpr ForeignOption kAccelerate[] = {
    {"mixed-precision", 1, Fate::ours, "--env=ACCELERATE_MIXED_PRECISION={}"},
    {"cpu", 0, Fate::ours, "--env=ACCELERATE_USE_CPU=true"},
    {"enable-cpu-affinity", 0, Fate::ours, "--env=ACCELERATE_CPU_AFFINITY=1"},
    {"dynamo-backend", 1, Fate::ours, "--env=ACCELERATE_DYNAMO_BACKEND={}, in capitals",
     dynamo_backend},
    {"dynamo-mode", 1, Fate::ours, "--env=ACCELERATE_DYNAMO_MODE={}"},
    {"dynamo-use-fullgraph", 0, Fate::ours, "--env=ACCELERATE_DYNAMO_USE_FULLGRAPH=True"},
    {"dynamo-use-dynamic", 0, Fate::ours, "--env=ACCELERATE_DYNAMO_USE_DYNAMIC=True"},
    {"dynamo-use-regional-compilation", 0, Fate::ours,
     "--env=ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=True"},
    {"gpu-ids", 1, Fate::ours, "--env=CUDA_VISIBLE_DEVICES={}", gpu_ids},
    {"mpirun-hostfile", 1, Fate::ours, "--hostfile={}"},
    {"same-network", 0, Fate::nothing, "hosts meet at --master-addr or --rdzv in any case"},
    {"use-deepspeed use-fsdp use-parallelism-config use-megatron-lm", 0, Fate::refused, kNoPlugins},
    {"deepspeed-config-file zero-stage offload-optimizer-device offload-param-device "
     "offload-optimizer-nvme-path offload-param-nvme-path gradient-accumulation-steps "
     "gradient-clipping zero3-init-flag zero3-save-16bit-model deepspeed-hostfile "
     "deepspeed-exclusion-filter deepspeed-inclusion-filter deepspeed-multinode-launcher "
     "deepspeed-moe-layer-cls-names",
     1, Fate::refused, kNoPlugins},
    {"fsdp-version fsdp-offload-params fsdp-min-num-params fsdp-sharding-strategy "
     "fsdp-reshard-after-forward fsdp-auto-wrap-policy fsdp-transformer-layer-cls-to-wrap "
     "fsdp-backward-prefetch fsdp-state-dict-type fsdp-forward-prefetch fsdp-use-orig-params "
     "fsdp-cpu-ram-efficient-loading fsdp-sync-module-states fsdp-activation-checkpointing "
     "fsdp-activation-checkpointing-offload",
     1, Fate::refused, kNoPlugins},
    {"megatron-lm-tp-degree megatron-lm-use-custom-fsdp megatron-lm-no-load-optim "
     "megatron-lm-eod-mask-loss megatron-lm-overlap-cpu-optimizer-d2h-h2d "
     "megatron-lm-no-save-optim megatron-lm-optimizer-cpu-offload "
     "megatron-lm-use-precision-aware-optimizer megatron-lm-decoder-last-pipeline-num-layers "
     "megatron-lm-pp-degree megatron-lm-num-micro-batches megatron-lm-sequence-parallelism "
     "megatron-lm-recompute-activations megatron-lm-use-distributed-optimizer "
     "megatron-lm-gradient-clipping megatron-lm-recompute-granularity "
     "megatron-lm-recompute-method megatron-lm-recompute-num-layers "
     "megatron-lm-attention-backend megatron-lm-expert-model-parallel-size "
     "megatron-lm-context-parallel-size megatron-lm-attention-dropout "
     "megatron-lm-hidden-dropout megatron-lm-attention-softmax-in-fp32 "
     "megatron-lm-expert-tensor-parallel-size megatron-lm-calculate-per-token-loss "
     "megatron-lm-use-rotary-position-embeddings",
     1, Fate::refused, kNoPlugins},
    {"fp8-backend fp8-margin fp8-interval fp8-format fp8-amax-history-len fp8-amax-compute-algo "
     "fp8-override-linear-precision fp8-opt-level fp8-enable-fsdp-float8-all-gather "
     "fp8-pad-inner-dim",
     1, Fate::refused, kNoPlugins},
    {"fp8-use-autocast-during-eval", 0, Fate::refused, kNoPlugins},
    {"parallelism-config-dp-replicate-size parallelism-config-dp-shard-size "
     "parallelism-config-tp-size parallelism-config-cp-size parallelism-config-cp-backend "
     "parallelism-config-cp-comm-strategy parallelism-config-sp-size parallelism-config-sp-backend "
     "parallelism-config-sp-seq-length parallelism-config-sp-seq-length-is-variable "
     "parallelism-config-sp-attn-implementation",
     1, Fate::refused, kNoPlugins},
    {"tpu tpu-cluster no-tpu-cluster tpu-use-sudo downcast-bf16", 0, Fate::refused, kNoTpu},
    {"vm main-training-function", 1, Fate::refused, kNoTpu},
    {"aws-access-key-id aws-secret-access-key", 1, Fate::refused,
     "dlaunch starts no jobs on SageMaker"},
};

}  // namespace

std::span<const ForeignOption> torchrun_options() { return kTorchrun; }
std::span<const ForeignOption> accelerate_options() { return kAccelerate; }

}  // namespace dlaunch

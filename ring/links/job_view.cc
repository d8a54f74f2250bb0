#include "ring/links/job_view.h"

#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include <climits>

#include "base/contract.h"
#include "base/units.h"

namespace dlaunch {
namespace {

constexpr int kMaxSockets = 64;  // to one rank
constexpr std::size_t kMaxWorldName = 64;

Error bad(std::string what) { return Error{.code = Errc::usage, .what = std::move(what)}; }

// The option if given, else the variable, else the default.
Result<Duration> timeout(double option_s, const Environment& env, const char* name,
                         Duration otherwise) {
  if (!(option_s < 0)) {
    if (!std::isfinite(option_s) || option_s > 1e9) return bad("a time-out is out of range");
    return Duration(static_cast<std::int64_t>(std::ceil(option_s * 1e9)));  // 0 is another limit
  }
  const auto text = env(name);
  if (!text) return otherwise;
  auto parsed = parse_duration(*text);
  if (!parsed) return bad(std::string(name) + ": " + parsed.error().what);
  return parsed;
}

Result<int> number(int option, const Environment& env, const char* name, int low, int high) {
  if (option >= 0) {
    if (option >= low && option <= high) return option;
    return bad(std::string(name) + " is out of range: " + std::to_string(option));
  }
  const auto text = env(name);
  if (!text)
    return bad(std::string(name) +
               " is not set: start the program with a launcher, or "
               "give rank and size");
  return parse_int(*text, low, high, name);
}

Result<void> who_am_i(const dl_options& options, const Environment& env, JobView& job) {
  constexpr int kMaxRanks = 65536;
  auto size = number(options.size, env, "WORLD_SIZE", 1, kMaxRanks);
  if (!size) return size.error();
  auto rank = number(options.rank, env, "RANK", 0, *size - 1);
  if (!rank) return rank.error();
  job.size = *size;
  job.rank = *rank;
  return {};
}

// MASTER_ADDR has no port after it, so IPv6 addresses there have no brackets.
std::string bracketed(const std::string& host) {
  const bool bare_v6 = std::count(host.begin(), host.end(), ':') > 1 && host.front() != '[';
  return bare_v6 ? "[" + host + "]" : host;
}

bool on_one_host(const Environment& env, const JobView& job) {
  return job.size == 1 || env("LOCAL_WORLD_SIZE") == std::to_string(job.size);
}

// Uses dlaunch's own store, or MASTER_ADDR and MASTER_PORT of other launchers.
Result<void> from_environment(const Environment& env, JobView& job) {
  if (const auto rdzv = env(contract::kRdzv)) {
    job.store_url = *rdzv;
    return {};
  }
  const auto address = env("MASTER_ADDR");
  const auto port = env("MASTER_PORT");
  if (!address || !port) {
    return bad(std::string("neither ") + contract::kRdzv +
               " nor MASTER_ADDR and MASTER_PORT are set");
  }
  job.store_url = "tcp://" + bracketed(*address) + ":" + *port;
  job.hosts_store = job.rank == 0;
  // MASTER_ADDR is the host's name in jobs of one host, too.
  job.may_span_hosts = env("LOCAL_WORLD_SIZE").has_value() && !on_one_host(env, job);
  return {};
}

template <class T, std::size_t N>
Result<T> word(const std::string& text, const WordTable<T, N>& words, const char* name) {
  if (const auto value = value_of(words, text)) return *value;
  return bad(std::string(name) + " '" + text + "' is not " + list_of(words));
}

Result<void> settings(const dl_options& options, const Environment& env, JobView& job) {
  auto init = timeout(options.init_timeout_s, env, contract::kInitTimeout, job.init_timeout);
  if (!init) return init.error();
  job.init_timeout = *init;
  auto op = operation_limit(options.op_timeout_s, env, job.op_timeout);
  if (!op) return op.error();
  job.op_timeout = *op;
  auto link = timeout(-1, env, contract::kLinkTimeout, job.link_timeout);
  if (!link) return link.error();
  if (*link != Duration::zero() && *link < std::chrono::seconds(2)) {
    return bad(std::string(contract::kLinkTimeout) + ": the least is 2 s; 0 means never");
  }
  job.link_timeout = *link;

  auto text = [&](const char* option, const char* name, const std::string& otherwise) {
    return option != nullptr ? std::string(option) : env(name).value_or(otherwise);
  };
  const auto transport =
      word(text(options.transport, contract::kTransport, "auto"), kTransportWords, "transport");
  if (!transport) return transport.error();
  job.transport = *transport;
  const auto links = word(env(contract::kLinks).value_or("auto"), kLinkWords, contract::kLinks);
  if (!links) return links.error();
  job.links = *links;
  const auto verify = word(env(contract::kVerify).value_or("off"), kVerifyWords, contract::kVerify);
  if (!verify) return verify.error();
  job.verify = *verify;
  const auto backend = word(text(nullptr, contract::kBackend, "auto"), kBackendWords, "backend");
  if (!backend) return backend.error();
  job.use_nccl = *backend == Backend::automatic;
  const auto codec =
      word(text(options.wire_codec, contract::kWireCodec, "none"), kWireCodecWords, "wire codec");
  if (!codec) return codec.error();
  job.codec = *codec;
  job.job_id = text(options.job_id, contract::kJobId, "default");
  job.secret_file = text(options.secret_file, contract::kSecretFile, "");
  const auto tls = env(contract::kTls).value_or("");
  if (!tls.empty() && tls != "0" && tls != "1")
    return bad(std::string(contract::kTls) + " is 1 or 0, not '" + tls + "'");
  job.tls = tls == "1";
  job.plan = env(contract::kPlan).value_or("");
  auto rules = parse_plan_rules(job.plan);
  if (!rules) return bad(std::string(contract::kPlan) + ": " + rules.error().what);
  job.plan_rules = std::move(*rules);
  const auto sockets = env(contract::kSockets).value_or("auto");
  if (sockets != "auto") {
    auto parsed = parse_int(sockets, 1, kMaxSockets, contract::kSockets);
    if (!parsed) return parsed.error();
    job.sockets = *parsed;
  }
  if (const auto debug = env(contract::kDebug)) {
    const auto kind = value_of(kDebugWords, *debug);
    if (!kind && !debug->empty()) {
      return bad(std::string(contract::kDebug) + " is " + list_of(kDebugWords) + ", not '" +
                 *debug + "'");
    }
    job.explains = kind == DebugOutput::explain;
  }
  job.interface = env(contract::kInterface).value_or("");
  job.rack = env(contract::kRack).value_or("");
  if (const auto ports = env(contract::kPortRange)) {
    auto parsed = parse_port_range(*ports);
    if (!parsed) return bad(std::string(contract::kPortRange) + ": " + parsed.error().what);
    job.ports = *parsed;
  }
  job.round_dir = env(contract::kRoundDir).value_or("");
  job.traced = env(contract::kTraced).has_value();
  if (const auto round = env(contract::kRound)) {
    auto parsed = parse_int(*round, 0, 1 << 30, contract::kRound);
    if (!parsed) return parsed.error();
    job.round = static_cast<std::uint64_t>(*parsed);
  }
  if (const auto cores = env(contract::kLocalCores)) {
    auto parsed = parse_int(*cores, 1, 1 << 20, contract::kLocalCores);
    if (!parsed) return parsed.error();
    job.local_cores = *parsed;
  }
  return {};
}

// A world of one: neither options nor environment set its rank or size.
bool started_alone(const dl_options& options, const Environment& env) {
  const std::string size =
      options.size >= 0 ? std::to_string(options.size) : env("WORLD_SIZE").value_or("");
  return !env("RANK") && options.rank < 0 && (size.empty() || size == "1");
}

// Whether another launcher, with variables of its own, has started several such worlds.
// SLURM_NTASKS is no evidence: a batch script that runs the program once has it, too.
std::string several_alone(const Environment& env) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const auto text = env(name);
    if (!text || !parse_int(*text, 2, INT_MAX, name)) continue;
    return std::string(name) + " is " + *text +
           ", but RANK and WORLD_SIZE are not set: each of these processes is a world of one. "
           "Start the program with dlaunch, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
  }
  return "";
}

// "tcp://host:port/NAME" has two parts. The launcher knows only the ranks of the world without a
// name.
Result<void> split_world_name(JobView& job) {
  const auto slash = job.store_url.find('/', std::string_view("tcp://").size());
  if (slash == std::string::npos) return {};
  job.world_name = job.store_url.substr(slash + 1);
  const bool plain = std::all_of(job.world_name.begin(), job.world_name.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
  });
  if (job.world_name.empty() || job.world_name.size() > kMaxWorldName || !plain) {
    return bad("'" + job.store_url + "': the name of a world, after host:port/, has 1 to " +
               std::to_string(kMaxWorldName) + " letters, digits or one of -_.");
  }
  job.store_url.resize(slash);
  job.round_dir.clear();
  return {};
}

// Finds the identity of this rank, and the store.
Result<void> place(const std::string& where, const dl_options& options, const Environment& env,
                   JobView& job) {
  // The agent will assign rank and size, round by round.
  if (options.elastic != 0 && where == "env://" && env(contract::kAgent)) {
    auto worker = parse_int(env(contract::kWorker).value_or(""), 0, 1 << 30, contract::kWorker);
    if (!worker) return worker.error();
    job.agent = *env(contract::kAgent);
    job.worker = *worker;
    return {};
  }
  if (where == "env://") {
    if (started_alone(options, env)) {
      job.warning = several_alone(env);
      return {};
    }
    if (auto ok = who_am_i(options, env, job); !ok) return ok.error();
    return job.size == 1 ? Result<void>() : from_environment(env, job);
  }
  const auto is = [&](std::string_view scheme) { return where.starts_with(scheme); };
  if (!is("tcp://") && !is("file://") && !is("etcd://") && !is("etcds://")) {
    return bad("'" + where +
               "' is not env://, tcp://host:port, file:///folder or etcd://host:port,.../prefix");
  }
  if (auto ok = who_am_i(options, env, job); !ok) return ok.error();
  job.store_url = where;
  if (!is("tcp://")) return {};
  job.hosts_store = job.rank == 0;
  job.may_span_hosts = !on_one_host(env, job);
  return split_world_name(job);
}

}  // namespace

Result<Duration> operation_limit(double option_s, const Environment& env, Duration otherwise) {
  auto limit = timeout(option_s, env, contract::kOpTimeout, otherwise);
  return limit && *limit == Duration::zero() ? Duration(-1) : limit;
}

Result<Duration> operation_limit(double option_s, Duration otherwise) {
  return operation_limit(
      option_s, [](const std::string&) { return std::nullopt; }, otherwise);
}

Result<JobView> resolve_job(const char* url, const dl_options* given, const Environment& env) {
  dl_options options;
  dl_options_init(&options);
  if (given != nullptr) {
    // Programs built before an option was added know a shorter struct.
    if (given->struct_size < offsetof(dl_options, wire_codec) ||
        given->struct_size > sizeof options) {
      return bad("dl_options was not set up by dl_options_init()");
    }
    std::memcpy(&options, given, given->struct_size);
    options.struct_size = sizeof options;
  }
  JobView job;
  if (auto ok = settings(options, env, job); !ok) return ok.error();
  if (auto ok = place(url == nullptr || *url == '\0' ? "env://" : url, options, env, job); !ok) {
    return ok.error();
  }
  if (job.tls && job.secret_file.empty() && (job.size > 1 || !job.agent.empty())) {
    return bad(std::string(contract::kTls) + " needs a secret: " + contract::kSecretFile);
  }
  return job;
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = ::getenv(name.c_str());
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  };
}

}  // namespace dlaunch

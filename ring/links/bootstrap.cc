#include "ring/links/bootstrap.h"

#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include <climits>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr int kMaxSockets = 64;  // to one rank
constexpr std::size_t kMaxMeeting = 64;

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

// Uses dlaunch's own store, or MASTER_ADDR and MASTER_PORT of other launchers.
Result<void> from_environment(const Environment& env, JobView& job) {
  if (const auto rdzv = env("DLAUNCH_RDZV")) {
    job.store_url = *rdzv;
    return {};
  }
  const auto address = env("MASTER_ADDR");
  const auto port = env("MASTER_PORT");
  if (!address || !port) {
    return bad("neither DLAUNCH_RDZV nor MASTER_ADDR and MASTER_PORT are set");
  }
  job.store_url = "tcp://" + bracketed(*address) + ":" + *port;
  job.hosts_store = job.rank == 0;
  return {};
}

Result<void> settings(const dl_options& options, const Environment& env, JobView& job) {
  auto init = timeout(options.init_timeout_s, env, "DLAUNCH_INIT_TIMEOUT", job.init_timeout);
  if (!init) return init.error();
  job.init_timeout = *init;
  auto op = operation_limit(options.op_timeout_s, env, job.op_timeout);
  if (!op) return op.error();
  job.op_timeout = *op;
  auto link = timeout(-1, env, "DLAUNCH_LINK_TIMEOUT", job.link_timeout);
  if (!link) return link.error();
  if (*link != Duration::zero() && *link < std::chrono::seconds(2)) {
    return bad("DLAUNCH_LINK_TIMEOUT: the least is 2 s; 0 means never");
  }
  job.link_timeout = *link;

  auto text = [&](const char* option, const char* name, const std::string& otherwise) {
    return option != nullptr ? std::string(option) : env(name).value_or(otherwise);
  };
  job.transport = text(options.transport, "DLAUNCH_TRANSPORT", "auto");
  if (job.transport != "auto" && job.transport != "shm" && job.transport != "tcp") {
    return bad("transport '" + job.transport + "' is not auto, shm or tcp");
  }
  const auto codec = text(options.wire_codec, "DLAUNCH_WIRE_CODEC", "none");
  const auto backend = text(nullptr, "DLAUNCH_BACKEND", "auto");
  if (backend != "auto" && backend != "cpu")
    return bad("backend '" + backend + "' is not auto or cpu");
  job.use_nccl = backend == "auto";
  const auto known = wire_codec_named(codec);
  if (!known) return bad("wire codec '" + codec + "' is not none, bf16 or int8");
  job.codec = *known;
  job.job_id = text(options.job_id, "DLAUNCH_JOB_ID", "default");
  job.secret_file = text(options.secret_file, "DLAUNCH_SECRET_FILE", "");
  const auto tls = env("DLAUNCH_TLS").value_or("");
  if (!tls.empty() && tls != "0" && tls != "1")
    return bad("DLAUNCH_TLS is 1 or 0, not '" + tls + "'");
  job.tls = tls == "1";
  job.plan = env("DLAUNCH_PLAN").value_or("");
  auto rules = parse_plan_rules(job.plan);
  if (!rules) return bad("DLAUNCH_PLAN: " + rules.error().what);
  job.plan_rules = std::move(*rules);
  const auto sockets = env("DLAUNCH_SOCKETS").value_or("auto");
  if (sockets != "auto") {
    auto parsed = parse_int(sockets, 1, kMaxSockets, "DLAUNCH_SOCKETS");
    if (!parsed) return parsed.error();
    job.sockets = *parsed;
  }
  const auto debug = env("DLAUNCH_DEBUG").value_or("");
  if (!debug.empty() && debug != "explain")
    return bad("DLAUNCH_DEBUG is explain, not '" + debug + "'");
  job.explains = debug == "explain";
  job.interface = env("DLAUNCH_INTERFACE").value_or("");
  if (const auto ports = env("DLAUNCH_PORT_RANGE")) {
    auto parsed = parse_port_range(*ports);
    if (!parsed) return bad("DLAUNCH_PORT_RANGE: " + parsed.error().what);
    job.ports = *parsed;
  }
  job.round_dir = env("DLAUNCH_ROUND_DIR").value_or("");
  if (const auto round = env("DLAUNCH_ROUND")) {
    auto parsed = parse_int(*round, 0, 1 << 30, "DLAUNCH_ROUND");
    if (!parsed) return parsed.error();
    job.round = static_cast<std::uint64_t>(*parsed);
  }
  if (const auto cores = env("DLAUNCH_LOCAL_CORES")) {
    auto parsed = parse_int(*cores, 1, 1 << 20, "DLAUNCH_LOCAL_CORES");
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

// "tcp://host:port/meeting" has two parts. The launcher knows only the ranks of its own
// meeting.
Result<void> split_meeting(JobView& job) {
  const auto slash = job.store_url.find('/', std::string_view("tcp://").size());
  if (slash == std::string::npos) return {};
  job.meeting = job.store_url.substr(slash + 1);
  const bool plain = std::all_of(job.meeting.begin(), job.meeting.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
  });
  if (job.meeting.empty() || job.meeting.size() > kMaxMeeting || !plain) {
    return bad("'" + job.store_url + "': the name of a meeting, after host:port/, has 1 to " +
               std::to_string(kMaxMeeting) + " letters, digits or one of -_.");
  }
  job.store_url.resize(slash);
  job.round_dir.clear();
  return {};
}

// Finds the identity of this rank, and its meeting place.
Result<void> place(const std::string& where, const dl_options& options, const Environment& env,
                   JobView& job) {
  // The agent will assign rank and size, round by round.
  if (options.elastic != 0 && where == "env://" && env("DLAUNCH_AGENT")) {
    auto worker = parse_int(env("DLAUNCH_WORKER").value_or(""), 0, 1 << 30, "DLAUNCH_WORKER");
    if (!worker) return worker.error();
    job.agent = *env("DLAUNCH_AGENT");
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
  return split_meeting(job);
}

}  // namespace

Result<Duration> operation_limit(double option_s, const Environment& env, Duration otherwise) {
  auto limit = timeout(option_s, env, "DLAUNCH_OP_TIMEOUT", otherwise);
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
    return bad("DLAUNCH_TLS needs a secret: DLAUNCH_SECRET_FILE");
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

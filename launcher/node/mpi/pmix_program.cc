#include "launcher/node/mpi/pmix_program.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/rank_set.h"
#include "base/write_all.h"
#include "launcher/node/mpi/node_exchange.h"
#include "launcher/node/mpi/pmix_fences.h"
#include "launcher/node/mpi/pmix_infos.h"
#include "launcher/node/mpi/pmix_job.h"
#include "launcher/node/mpi/pmix_library.h"
#include "launcher/node/mpi/relay.h"
#include "launcher/process/process_tree.h"

namespace dlaunch {
namespace {

using pmix::Status;

constexpr unsigned kEndSeconds = 2;  // for the library to clean up
constexpr Duration kPatience = std::chrono::seconds(10);
constexpr std::size_t kMostOrder = std::size_t{16} << 20;

// The library's callbacks have no argument for our own data.
PmixFences* g_fences = nullptr;

bool told_to_end() {
  pollfd orders{.fd = STDIN_FILENO, .events = 0, .revents = 0};
  return ::poll(&orders, 1, 0) > 0;
}

// Prints a line for the agent.
bool say(const std::string& line) { return write_all(STDOUT_FILENO, line + "\n").os_errno == 0; }

// -- The library's requests

Status on_connected(const pmix::Proc* proc, void*, pmix::Done, void*) {
  say(fmt::format("rank {}", proc->rank));
  return pmix::kSucceededAtOnce;
}

Status on_finalized(const pmix::Proc*, void*, pmix::Done, void*) { return pmix::kSucceededAtOnce; }

// The rank waits in it until it is killed. MPI_Abort() is a failure, whatever its code.
Status on_abort(const pmix::Proc* proc, void*, int status, const char*, pmix::Proc[], std::size_t,
                pmix::Done, void*) {
  const int code = (status & 0xff) != 0 ? status & 0xff : 1;
  return say(fmt::format("abort {} {}", proc->rank, code)) ? pmix::kSuccess : pmix::kError;
}

Status on_fence(const pmix::Proc procs[], std::size_t count, const pmix::Info[], std::size_t,
                char* data, std::size_t size, pmix::Exchanged done, void* caller) {
  return g_fences->come(procs, count, data, size, done, caller);
}

// A job keeps the ranks that it was started with.
Status on_spawn(const pmix::Proc* proc, const pmix::Info[], std::size_t, const void*, std::size_t,
                void*, void*) {
  say(fmt::format("spawn {}", proc->rank));
  return pmix::kNotSupported;
}

// With this callback the library accepts orders that it carries out itself: what to remove after a
// rank.
Status on_control(const pmix::Proc*, const pmix::Proc[], std::size_t, const pmix::Info[],
                  std::size_t, void*, void*) {
  return pmix::kNotSupported;
}

// -- Data for the ranks

// The number of the rank's program, and the rank's number among the ranks of that program.
std::pair<int, int> place_in_program(const PmixOrder& order, int rank) {
  for (std::size_t number = 0; number < order.programs.size(); ++number) {
    const auto ranks = parse_rank_set(order.programs[number]);
    if (!ranks || !ranks->contains(rank)) continue;
    const auto before = std::distance(ranks->begin(), ranks->find(rank));
    return {static_cast<int>(number), static_cast<int>(before)};
  }
  return {0, rank};
}

PmixInfos facts_of_rank(const PmixOrder& order, const PmixNode& node, int node_rank,
                        std::size_t local_rank) {
  const int rank = node.ranks[local_rank];
  const auto [appnum, app_rank] = place_in_program(order, rank);
  PmixInfos facts;
  facts.add_rank("pmix.rank", rank);
  facts.add_uint32("pmix.appnum", static_cast<unsigned>(appnum));
  facts.add_rank("pmix.aldr", 0);
  facts.add_rank("pmix.grank", rank);
  facts.add_rank("pmix.apprank", app_rank);
  facts.add_uint16("pmix.lrank", static_cast<unsigned>(local_rank));
  facts.add_uint16("pmix.nrank", static_cast<unsigned>(local_rank));
  facts.add_uint32("pmix.nodeid", static_cast<unsigned>(node_rank));
  facts.add_text("pmix.hname", node.host);
  return facts;
}

void add_size(PmixInfos& facts, const PmixOrder& order) {
  const auto size = static_cast<unsigned>(order.size);
  for (const char* key : {"pmix.job.size", "pmix.univ.size", "pmix.max.size", "pmix.app.size"}) {
    facts.add_uint32(key, size);
  }
  facts.add_uint32("pmix.job.napps", std::max(1u, static_cast<unsigned>(order.programs.size())));
  facts.add_uint32("pmix.num.nodes", static_cast<unsigned>(order.nodes));
  facts.add_uint32("pmix.local.size", static_cast<unsigned>(order.ranks.size()));
  facts.add_uint32("pmix.node.size", static_cast<unsigned>(order.ranks.size()));
}

class PmixProgram {
 public:
  explicit PmixProgram(PmixOrder order) : order_(std::move(order)) {}
  // Opens all that ranks connect to.
  Result<void> open();
  // Until the order to end.
  void serve();
  void close();

 private:
  Result<void> find_nodes();
  Result<void> start_library();
  Result<void> add_maps(PmixInfos& facts) const;
  Result<void> register_ranks();
  Result<std::uint16_t> port() const;
  std::string folder(const char* name) const { return order_.folder + name; }
  const std::string& host() const {
    return nodes_[static_cast<std::size_t>(order_.node_rank)].host;
  }
  void await_end();

  const PmixOrder order_;
  StoreOptions store_;
  PmixLibrary library_{};
  std::vector<PmixNode> nodes_;
  std::optional<PmixFences> fences_;
  pmix::ServerModule module_;
  asio::io_context loop_{1};
  asio::posix::stream_descriptor end_{loop_, STDIN_FILENO};
  asio::signal_set end_signal_{loop_};
  std::optional<Relay> relay_;
  char byte_ = 0;
};

Result<void> PmixProgram::open() {
  auto library = PmixLibrary::load();
  if (!library) return library.error();
  library_ = *library;
  for (const char* name : {"", "/server", "/job"}) {
    if (::mkdir(folder(name).c_str(), 0700) != 0) return errno_error(folder(name), errno);
  }
  if (auto ok = find_nodes(); !ok) return ok;
  fences_.emplace(order_, nodes_, store_, told_to_end);
  g_fences = &*fences_;
  if (auto ok = start_library(); !ok) return ok;
  if (auto ok = register_ranks(); !ok) return ok;
  const auto there = port();
  if (!there) return there.error();
  relay_.emplace(loop_, UniqueFd(order_.listener), *there);
  say("ready");
  await_end();
  end_signal_.add(SIGTERM);
  end_signal_.async_wait([this](asio::error_code, int) { loop_.stop(); });
  return {};
}

// The nodes of the round exchange which ranks they have.
Result<void> PmixProgram::find_nodes() {
  store_ = {.job_id = order_.job_id,
            .secret = {},
            .who = fmt::format("the MPI programs on {}", order_.host)};
  if (!order_.secret_file.empty()) {
    auto secret = Secret::load(order_.secret_file);
    if (!secret) return secret.error();
    store_.secret = std::move(*secret);
    store_.secret.set_encrypts(order_.tls);
  }
  NodeExchange::Request request{
      .store_url = order_.store_url,
      .key = pmix_keys(order_.round) + "nodes/",
      .node = order_.node_rank,
      .text = encode_node({order_.host, order_.ranks, library_.version.text})};
  for (int node = 0; node < order_.nodes; ++node) {
    if (node != order_.node_rank) request.others.push_back(node);
  }
  std::vector<std::string> texts;
  if (!request.others.empty()) {
    const auto patience = steady_now() + kPatience;
    bool told = false;
    NodeExchange exchange(store_);
    auto others = exchange.run(request, [&](int node) {
      if (steady_now() > patience && !std::exchange(told, true)) {
        log_warn(
            "MPI programs on {} wait for those of the host whose NODE_RANK is {}: do all ranks "
            "there call MPI_Init(), and does it have a libpmix?",
            order_.host, node);
      }
      return told_to_end();
    });
    if (!others) return others.error();
    texts = std::move(*others);
    if (order_.node_rank == 0) exchange.forget(pmix_keys(order_.round - 1));  // all have left
  }
  texts.insert(texts.begin() + order_.node_rank, request.text);
  for (const auto& text : texts) {
    auto node = decode_node(text, order_.size);
    if (!node) return node.error();
    nodes_.push_back(std::move(*node));
  }
  return check_nodes(nodes_, order_.size);
}

Result<void> PmixProgram::start_library() {
  ::setenv("PMIX_MCA_preg", "native", 0);  // maps are plain text
  // The same values as in pmix_job.h, set before this library makes its own choice.
  ::setenv("PMIX_MCA_gds", "hash", 1);  // nothing is left in shared memory
  ::setenv("PMIX_MCA_psec", "native", 1);
  ::setenv("PMIX_MCA_bfrops_base_default_type", "1", 1);  // PMIX_BFROP_BUFFER_NON_DESC
  module_.client_connected = on_connected;
  module_.client_finalized = on_finalized;
  module_.abort = on_abort;
  module_.fence = on_fence;
  module_.spawn = on_spawn;
  module_.job_control = on_control;
  PmixInfos facts;
  facts.add_text("pmix.srv.nspace", kPmixServerName);
  facts.add_rank("pmix.srv.rank", order_.node_rank);
  facts.add_text("pmix.srvr.tmpdir", folder("/server"));
  facts.add_text("pmix.sys.tmpdir", folder("/server"));
  facts.add_text("pmix.hname", host());
  return library_.check("PMIx_server_init", library_.init(&module_, facts.data(), facts.size()));
}

Result<void> PmixProgram::add_maps(PmixInfos& facts) const {
  const auto add = [&](const char* key, char* map) {
    const bool typed = library_.version >= PmixVersion{4, 0, {}};
    typed ? facts.add_regex(key, map) : facts.add_text(key, map);
    std::free(map);
  };
  char* map = nullptr;
  auto made = library_.check("PMIx_generate_regex",
                             library_.generate_regex(host_list(nodes_).c_str(), &map));
  if (!made) return made;
  add("pmix.nmap", map);
  made =
      library_.check("PMIx_generate_ppn", library_.generate_ppn(rank_lists(nodes_).c_str(), &map));
  if (made) add("pmix.pmap", map);
  return made;
}

Result<void> PmixProgram::register_ranks() {
  PmixInfos facts;
  add_size(facts, order_);
  if (auto ok = add_maps(facts); !ok) return ok;
  facts.add_text("pmix.jobid", order_.nspace);
  facts.add_text("pmix.lpeers", joined(order_.ranks));
  facts.add_rank("pmix.lldr", *std::ranges::min_element(order_.ranks));
  facts.add_text("pmix.tmpdir", order_.folder);
  facts.add_text("pmix.nsdir", folder("/job"));
  facts.add_flag("pmix.tdir.rmclean", true);
  facts.add_flag("pmix.spawned", false);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    for (std::size_t i = 0; i < nodes_[node].ranks.size(); ++i) {
      facts.add_list("pmix.pdata", facts_of_rank(order_, nodes_[node], static_cast<int>(node), i));
    }
  }
  auto ok = library_.check(
      "PMIx_server_register_nspace",
      library_.register_nspace(order_.nspace.c_str(), static_cast<int>(order_.ranks.size()),
                               facts.data(), facts.size(), nullptr, nullptr));
  for (const int rank : order_.ranks) {
    if (!ok) return ok;
    const auto proc = proc_of(order_, rank);
    ok = library_.check(
        "PMIx_server_register_client",
        library_.register_client(&proc, ::geteuid(), ::getegid(), nullptr, nullptr, nullptr));
  }
  return ok;
}

// The library's own port: it gives it only to ranks that it expects.
Result<std::uint16_t> PmixProgram::port() const {
  const auto proc = proc_of(order_, order_.ranks.front());
  char** environment = nullptr;
  if (auto ok = library_.check("PMIx_server_setup_fork", library_.setup_fork(&proc, &environment));
      !ok) {
    return ok.error();
  }
  std::vector<std::string> variables;
  for (char** item = environment; item != nullptr && *item != nullptr; ++item) {
    variables.emplace_back(*item);
    std::free(*item);
  }
  std::free(environment);
  if (const auto port = pmix_port_in(variables)) return *port;
  return Error{.code = Errc::unsupported, .what = "libpmix does not listen to 127.0.0.1"};
}

void PmixProgram::await_end() {
  end_.async_read_some(asio::buffer(&byte_, 1), [this](asio::error_code ec, std::size_t) {
    if (ec) return loop_.stop();
    await_end();
  });
}

void PmixProgram::serve() { loop_.run(); }

// Removes what ranks asked to be removed after them.
void PmixProgram::close() {
  ::alarm(kEndSeconds);
  library_.deregister_nspace(order_.nspace.c_str(), nullptr, nullptr);
  library_.finalize();
}

Result<PmixOrder> read_order() {
  const auto read_all = [](char* at, std::size_t size) {
    for (ssize_t n = 0; size > 0; at += n, size -= static_cast<std::size_t>(n)) {
      n = ::read(STDIN_FILENO, at, size);
      if (n <= 0) return false;
    }
    return true;
  };
  std::uint32_t size = 0;
  const Error missing{.code = Errc::protocol,
                      .what = "no order on stdin: this is a part of dlaunch"};
  if (!read_all(reinterpret_cast<char*>(&size), sizeof size) || size > kMostOrder) return missing;
  std::string bytes(size, '\0');
  if (!read_all(bytes.data(), size)) return missing;
  return decode_order(bytes);
}

// Three descriptors for each rank: two here, and the library's own.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int run_pmix_server() {
  ::prctl(PR_SET_NAME, kCleanerName);
  ::signal(SIGPIPE, SIG_IGN);  // a rank, or the reader of stderr, may have gone
  raise_file_limit();
  auto order = read_order();
  if (!order) {
    std::fprintf(stderr, "dlaunch: %s\n", order.error().what.c_str());
    return kExitUsage;
  }
  PmixProgram program(std::move(*order));
  if (auto ok = program.open(); !ok) {
    if (told_to_end()) return kExitOk;  // perhaps the store is gone
    std::fprintf(stderr, "dlaunch: MPI programs on this host cannot be served by PMIx: %s\n",
                 ok.error().what.c_str());
    return kExitSystem;
  }
  program.serve();
  program.close();
  std::_Exit(kExitOk);  // some of its threads are the library's
}

}  // namespace dlaunch

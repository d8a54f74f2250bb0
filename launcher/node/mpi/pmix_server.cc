#include "launcher/node/mpi/pmix_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <asio/ip/tcp.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "base/codec.h"
#include "base/log.h"
#include "base/rank_set.h"
#include "base/write_all.h"
#include "launcher/node/mpi/loopback_owner.h"
#include "launcher/node/mpi/pmix_finder.h"
#include "launcher/node/mpi/pmix_program.h"
#include "launcher/node/mpi/relay.h"
#include "launcher/process/command.h"
#include "launcher/process/spawn.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;
using Descriptor = asio::posix::stream_descriptor;

constexpr Duration kLongestEnd = std::chrono::seconds(3);  // of processes that were asked to end
constexpr Duration kLongestAwaited =
    std::chrono::seconds(10);  // for ranks that do not come to MPI_Init()
// News of a rank may arrive later than its end.
TimePoint soon() { return steady_now() + std::chrono::seconds(1); }

// An enclosing launcher's variables are left out: its PMIx is another one. Settings of the
// library's own parts stay.
std::vector<std::string> server_environment() {
  std::vector<std::string> all = own_environment();
  std::erase_if(all, [](const std::string& item) {
    return item.starts_with("PMIX_") && !item.starts_with("PMIX_MCA_");
  });
  return all;
}

}  // namespace

// A round's ranks and the process that serves them.
struct PmixServer::Served {
  explicit Served(asio::io_context& loop)
      : listener(loop), in(loop), out(loop), exited(loop), later(loop) {}

  void signal(int number) {
    ::syscall(SYS_pidfd_send_signal, exited.native_handle(), number, nullptr, 0);
  }
  // The ranks that have not come to MPI_Init(); empty while none has come.
  RankSet missing() const {
    RankSet all;
    for (const auto& [rank, worker] : workers) {
      if (!come.empty() && !come.contains(rank)) all.insert(rank);
    }
    return all;
  }

  PmixOrder order;
  std::map<int, int> ranks;    // of this node, by local rank
  std::map<int, int> workers;  // by rank
  std::size_t expected = 1;    // ranks of this node
  std::uint16_t port = 0;
  Doorman doorman;
  tcp::acceptor listener;  // until the process has it
  bool connected = false;  // a client has connected
  pid_t pid = -1;          // while it runs
  bool ending = false;     // it was asked to end
  bool ready = false;      // ranks can connect
  RankSet come, ended;     // ranks that have come to MPI_Init(); that have ended well
  TimePoint awaited_until{};
  bool told = false;  // dlaunch has warned about missing ranks
  Descriptor in, out, exited;
  asio::steady_timer later;
  char bytes[256];
  std::string unread;
};

PmixServer::PmixServer(asio::io_context& loop, std::set<pid_t>& helpers, Secret secret,
                       PmixOrder common)
    : loop_(loop), helpers_(helpers), secret_(std::move(secret)), common_(std::move(common)) {}

PmixServer::~PmixServer() {
  for (const auto& round : rounds_) end(*round);
  const auto last = steady_now() + kLongestEnd;
  for (const auto& round : rounds_) {
    if (round->pid < 0) continue;
    pollfd over{.fd = round->exited.native_handle(), .events = POLLIN, .revents = 0};
    if (::poll(&over, 1, poll_timeout_ms(steady_now(), last)) <= 0) round->signal(SIGKILL);
    ::waitpid(round->pid, nullptr, 0);
    helpers_.erase(round->pid);
  }
}

Result<Variables> PmixServer::invite(const WorkerPlace& place) {
  if (!std::exchange(looked_, true)) {
    version_ = find_pmix();
  }
  if (!version_) return Variables();
  if (rounds_.empty() || rounds_.back()->ending || rounds_.back()->order.round != place.round) {
    if (auto ok = begin(place); !ok) return ok.error();
    if (!version_) return Variables();
  }
  const ServedPtr round = rounds_.back();
  round->ranks[place.local_rank] = place.rank;
  round->workers[place.rank] = place.worker;
  start_if_complete(round);
  return pmix_environment(round->order, place.rank, round->port, *version_);
}

Result<void> PmixServer::begin(const WorkerPlace& place) {
  if (!rounds_.empty()) end(*rounds_.back());
  std::erase_if(rounds_, [](const ServedPtr& round) { return round->pid < 0; });
  const auto round = std::make_shared<Served>(loop_);
  round->order = common_;
  round->order.nspace = nspace_of(common_.job_id, place.master_port, place.round, secret_);
  round->order.round = place.round;
  round->order.size = place.size;
  round->order.node_rank = place.node_rank;
  round->order.nodes = place.nodes;
  round->order.store_url = place.store_url;
  round->order.folder = fmt::format("{}/mpi.{}", common_.folder, ++begun_);
  round->expected = static_cast<std::size_t>(place.local_size);
  asio::error_code ec;
  round->listener.open(tcp::v4(), ec);
  if (!ec) ::fcntl(round->listener.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!ec) round->listener.bind({asio::ip::address_v4::loopback(), 0}, ec);
  if (!ec) round->listener.listen(asio::socket_base::max_listen_connections, ec);
  if (!ec) round->listener.non_blocking(true, ec);
  if (ec == asio::error_code(EADDRNOTAVAIL, asio::system_category())) {
    log_info("Open MPI programs run alone: libpmix needs 127.0.0.1, which this host lacks");
    version_.reset();
    return {};
  }
  if (ec) return errno_error("listen on 127.0.0.1", ec.value());
  round->port = round->listener.local_endpoint().port();
  rounds_.push_back(round);
  await_first(round);
  return {};
}

// The process decides which clients to accept; it starts only for our own user.
void PmixServer::await_first(const ServedPtr& round) {
  round->listener.async_wait(tcp::acceptor::wait_read, [this, round](asio::error_code ec) {
    if (ec) return;
    if (!has_loopback(::geteuid(), round->port)) {
      const auto first = round->listener.accept(ec);  // removes a stranger from the queue
      if (!ec) round->doorman.lets_in(first);
      if (!ec || ec == asio::error::would_block) return await_first(round);
    }
    round->connected = true;
    start_if_complete(round);
  });
}

// The process must know all ranks of this node.
void PmixServer::start_if_complete(const ServedPtr& round) {
  if (!round->connected || round->ranks.size() < round->expected || !round->listener.is_open()) {
    return;
  }
  const auto started = start(round);
  asio::error_code ec;
  round->listener.close(ec);
  if (!started) log_warn("MPI programs on this host: {}", started.error().what);
}

Result<void> PmixServer::start(const ServedPtr& round) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  UniqueFd orders(in[0]), writing(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  UniqueFd reading(out[0]), says(out[1]);
  SpawnRequest request{
      .path = "/proc/self/exe", .argv = {"dlaunch", kPmixServerWord}, .env = server_environment()};
  request.in = orders.get();
  request.out = says.get();
  request.inherited = round->listener.native_handle();
  request.death_signal = SIGTERM;  // it cleans up
  auto spawned = spawn_helper(request);
  if (!spawned) return spawned.error();
  round->pid = spawned->pid;
  helpers_.insert(spawned->pid);
  round->order.listener = request.inherited;
  for (const auto& [local_rank, rank] : round->ranks) round->order.ranks.push_back(rank);
  Writer order;
  order.put_string(encode_order(round->order));
  (void)write_all(writing.get(), order.bytes());  // a pipe holds it; a non-reader has ended
  asio::error_code ec;
  ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  round->in.assign(writing.release(), ec);
  round->out.assign(reading.release(), ec);
  round->exited.assign(spawned->pidfd.release(), ec);
  read(round);
  watch(round);
  return {};
}

void PmixServer::read(const ServedPtr& round) {
  round->out.async_read_some(asio::buffer(round->bytes),
                             [this, round](asio::error_code ec, std::size_t n) {
                               if (ec) return;
                               round->unread.append(round->bytes, n);
                               for (auto end = round->unread.find('\n'); end != std::string::npos;
                                    end = round->unread.find('\n')) {
                                 take_line(round, round->unread.substr(0, end));
                                 round->unread.erase(0, end + 1);
                               }
                               read(round);
                             });
}

void PmixServer::take_line(const ServedPtr& round, const std::string& line) {
  int rank = 0, code = 0;
  if (line == "ready") {
    round->ready = true;
    round->awaited_until = steady_now() + kLongestAwaited;
    look_for_missing(round, round->ended.empty() ? round->awaited_until : soon());
  } else if (std::sscanf(line.c_str(), "rank %d", &rank) == 1) {
    round->come.insert(rank);
  } else if (std::sscanf(line.c_str(), "abort %d %d", &rank, &code) == 2) {
    const auto worker = round->workers.find(rank);
    if (worker != round->workers.end() && !round->ending && aborted_) {
      aborted_(worker->second, code);
    }
  } else if (std::sscanf(line.c_str(), "spawn %d", &rank) == 1 && spawn_asked_) {
    spawn_asked_(rank);
  }
}

void PmixServer::forget_rounds() {
  if (!rounds_.empty()) end(*rounds_.back());
}

void PmixServer::ended_well(int rank) {
  if (rounds_.empty()) return;
  const ServedPtr round = rounds_.back();
  round->ended.insert(rank);
  if (round->ready && !round->come.contains(rank)) look_for_missing(round, soon());
}

// Reports ranks of this node: a missing rank of another node keeps its process from getting ready.
void PmixServer::look_for_missing(const ServedPtr& round, TimePoint at) {
  round->later.expires_at(at);
  round->later.async_wait([this, round](asio::error_code ec) {
    const RankSet missing = round->missing();
    if (ec || round->ending || missing.empty() || round->told) return;
    RankSet gone = missing;
    std::erase_if(gone, [&](int rank) { return !round->ended.contains(rank); });
    if (gone.empty() && steady_now() < round->awaited_until) {
      return look_for_missing(round, round->awaited_until);
    }
    round->told = true;
    const auto& who = gone.empty() ? missing : gone;
    log_warn("MPI_Init() waits for rank{} {}, which {} {}", who.size() == 1 ? "" : "s",
             format_rank_set(who), who.size() == 1 ? "has" : "have",
             gone.empty() ? "not called it yet" : "ended without it");
  });
}

void PmixServer::watch(const ServedPtr& round) {
  round->exited.async_wait(Descriptor::wait_read, [this, round](asio::error_code ec) {
    if (ec || round->pid < 0) return;
    siginfo_t info{};
    const bool ours = ::waitid(P_PID, static_cast<id_t>(round->pid), &info, WEXITED | WNOHANG) == 0;
    if (ours && info.si_pid == 0) return watch(round);
    helpers_.erase(std::exchange(round->pid, -1));
    if (round->ending || !ours) return;  // asked to end, or killed with all our descendants
    log_warn(
        "what serves MPI programs on this host {}",
        describe({.status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status}, {}));
  });
}

// A process that was not ready has no ranks to clean up after, and may wait for the store, or for
// other nodes: kill it. A stopped one must continue.
void PmixServer::end(Served& round) {
  if (round.pid >= 0) round.signal(round.ready ? SIGCONT : SIGKILL);
  round.ending = true;
  asio::error_code ec;
  round.later.cancel();
  round.listener.close(ec);
  round.in.close(ec);
  round.out.close(ec);
}

}  // namespace dlaunch

// Making a communicator, choosing its planes, and ending it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/socket.h"
#include "ring/bootstrap.h"
#include "ring/communicator.h"
#include "ring/hosts/layered_plane.h"
#include "ring/links/descriptor_limit.h"
#include "ring/links/late_links.h"
#include "ring/links/ordered_links.h"
#include "ring/stream/stream_plane.h"

namespace dlaunch {
namespace {

// Each peer takes up to three descriptors, and more if several sockets lead to it: the usual limit
// of 1,024 is too low for a few hundred ranks, or many groups. Behind a tunnel for TLS each counts
// as three.
std::size_t descriptors_of(const JobView& job) {
  return static_cast<std::size_t>(job.size) * (job.tls ? 40 : 10);
}

constexpr int kAllDataSockets = 64, kMostDataSockets = 16;

// Whether their connections leave the host.
bool on_other_host(const RankFacts& one, const RankFacts& other) {
  return one.host != other.host && one.at.tcp.host != other.at.tcp.host;
}

// The sockets for data between two ranks beside the first one. A rank's total stays below some
// hundred.
std::size_t more_sockets(const RankFacts& one, const RankFacts& other, const JobView& job) {
  const bool by_unix = one.host == other.host && !one.at.unix_name.empty();
  if (one.rank == other.rank || by_unix) return 0;
  if (job.sockets > 0) return static_cast<std::size_t>(job.sockets - 1);
  if (!on_other_host(one, other)) return 0;
  const int share = kAllDataSockets / (job.size - 1);
  return std::bit_floor(static_cast<unsigned>(std::clamp(share, 1, kMostDataSockets))) - 1;
}

}  // namespace

std::uint32_t Communicator::hash_of_group(const std::string& group) {
  return static_cast<std::uint32_t>(std::hash<std::string>()(group)) | 1;
}

Result<std::unique_ptr<Communicator>> Communicator::make(const JobView& job,
                                                         const ParentEnd* parent) {
  if (job.explains) set_log_level(LogLevel::info);
  std::unique_ptr<Communicator> comm(new Communicator(job));
  if (!job.group.empty()) {
    comm->group_hash_ = hash_of_group(job.group);
  }
  if (job.size > 1) {
    if (auto ok = comm->connect(parent); !ok) {
      // For a group the parent gives the error, because it may know better which rank was lost.
      const bool lost = ok.error().code == Errc::peer_lost;
      if (lost && parent == nullptr) comm->note_peer_lost(ok.error());
      return ok.error();
    }
  }
  add_process_events(*comm);  // also for a world of one: its threads do not exist in a forked child
  return comm;
}

std::unique_ptr<Communicator> Communicator::ended(const Error& error) {
  std::unique_ptr<Communicator> comm(new Communicator(JobView()));
  comm->abort_.raise(error);
  add_process_events(*comm);
  return comm;
}

Communicator::~Communicator() {
  remove_process_events(*this);
  if (device_) (void)device_->settle();
  // Pending operations end now: their buffers may not outlive this.
  if (completions_.under_way() > 0) abort();
  const Error over = abort_.raised() ? abort_.error() : Error{};  // of what was under way
  collectives_.stop(over);
  messages_.stop(over);
  links_.reset();
}

Result<void> Communicator::connect(const ParentEnd* parent) {
  allow_descriptors(descriptors_of(job_));
  const std::string& folder = job_.round_dir;
  const int own = job_.world_rank(job_.rank);
  if (folder.empty()) {
    flight_ = FlightRecorder::of_process("");
  } else {
    flight_ = FlightRecorder::of_process(flight_file(folder, own), spans_file(folder, own),
                                         job_.size, job_.traced ? trace_file(folder, own) : "");
  }
  auto ready = bootstrap(job_, abort_, parent);
  if (!ready) return ready.error();
  job_.local_cores = ready->cores;  // for groups, too
  locals_ = ready->locals;
  if (job_.transport == Transport::tcp) {  // tcp hides which ranks share a host: perhaps all
    locals_.resize(static_cast<std::size_t>(job_.size));
    std::iota(locals_.begin(), locals_.end(), 0);
  }
  for (const auto& peer : ready->mesh.peers) who_.push_back(peer.who);
  if (auto ok = open_planes(*ready); !ok) return ok;
  open_verifier();
  auto watched = start_links(*ready);
  if (!watched) return watched.error();
  links_ = std::move(*watched);
  if (ready->shared) share_memory(ready->memory, ready->locals);
  // A group ends with the communicator that it was split from.
  if (job_.group.empty() && !ready->lives.words.empty()) {
    watch_for_deaths(ready->locals, std::move(ready->lives));
  }
  if (job_.group.empty()) flight_->joined();
  failpoint("communicator.joined");
  return {};
}

Result<std::unique_ptr<Links>> Communicator::start_links(Bootstrapped& ready) {
  std::vector<Links::Peer> peers;
  for (auto& peer : ready.mesh.peers) peers.push_back({peer.who, std::move(peer.link)});
  const auto naming = [this](Error error) { return named_in_job(std::move(error)); };
  auto memory = memory_from(ready.memory, ready.locals);
  const LinkGraph graph = job_.link_graph();
  if (graph.complete()) {
    return Links::start(job_.rank, std::move(peers), abort_, job_.link_timeout, naming,
                        std::move(memory), sockets_);
  }
  auto late = late_links(ready);
  if (!late) return late.error();
  return Links::start_few(job_.rank, std::move(peers), {graph, std::move(*late)}, abort_,
                          job_.link_timeout, naming, std::move(memory), sockets_);
}

Result<std::unique_ptr<LateSource>> Communicator::late_links(Bootstrapped& ready) const {
  const auto up = [](auto made) -> Result<std::unique_ptr<LateSource>> {
    if (!made) return made.error();
    return std::unique_ptr<LateSource>(std::move(*made));
  };
  if (sockets_) return up(OrderedLinks::open(sockets_));
  return up(LateLinks::open(job_.rank, std::move(ready.mesh.listener), std::move(ready.contacts)));
}

void Communicator::tell_of_loss(int peer) const {
  const std::string& who = who_[static_cast<std::size_t>(peer)];
  log_warn(
      "{} does not acknowledge data: its host is cut off, or large packets are lost on the way "
      "('dlaunch doctor' looks for unequal MTUs)",
      who);
}

// Prepares the sockets that the planes will need. Returns how many lead to one rank at most.
std::size_t Communicator::start_sockets(Bootstrapped& ready) {
  const RankFacts& own = ready.facts[static_cast<std::size_t>(job_.rank)];
  PairSockets::Ways ways;
  for (const RankFacts& rank : ready.facts) {
    ways.targets.push_back(rank.at);
    // Elsewhere that name may be another one's.
    if (rank.host != own.host) ways.targets.back().unix_name.clear();
    ways.more.push_back(more_sockets(own, rank, job_));
  }
  ways.ask = [this](int peer, PairSockets::Use use) { return links_->ask(peer, use); };
  const std::size_t each = 1 + *std::max_element(ways.more.begin(), ways.more.end());
  sockets_ = std::move(ready.mesh.sockets);
  sockets_->start(std::move(ways));
  return each;
}

// Opens the planes of messages, and of collectives: shared memory, sockets, or both with several
// hosts.
Result<void> Communicator::open_planes(Bootstrapped& ready) {
  if (!ready.mesh.sockets) {
    plane_ = std::move(ready.shm);
    regions_ = std::move(ready.regions);
    return {};
  }
  StreamOptions options{.local_ranks = static_cast<int>(locals_.size()),
                        .usable_cores = ready.cores,
                        .agreed_cores = ready.least_cores,
                        .sent_in_vain = [this](int peer) { tell_of_loss(peer); },
                        .has_left = [this](int peer) { return links_->has_left(peer); },
                        .leaves_host = std::any_of(
                            ready.facts.begin(), ready.facts.end(), [&](const RankFacts& rank) {
                              return on_other_host(ready.facts.front(), rank);
                            })};
  const std::size_t each = start_sockets(ready);
  const auto open = [&](PairSockets::Use use) {
    options.source = &sockets_->of(use);
    options.sockets_each = use == PairSockets::Use::data ? each : 1;
    return SocketGroup::open(job_.rank, job_.size, job_.round,
                             std::vector<UniqueFd>(static_cast<std::size_t>(job_.size)), abort_,
                             options);
  };
  auto for_messages = open(PairSockets::Use::messages);
  if (!for_messages) return for_messages.error();
  messenger_ = std::make_unique<Messenger>(std::move(*for_messages));
  auto for_data = open(PairSockets::Use::data);
  if (!for_data) return for_data.error();
  auto stream =
      make_stream_plane(std::move(*for_data), call_roll(), job_.plan_rules, job_.sockets > 0);
  if (group_hash_ == 0) {
    stream->tell_links([flight = flight_](int peer, std::uint64_t bytes, Duration time) {
      flight->received(peer, bytes, time);
    });
  }
  StreamPlane& between = *stream;
  plane_ = std::move(stream);
  if (ready.all_local() && !ready.shared) return {};
  auto layered = layer(ready, between);
  return layered ? Result<void>() : named_in_job(layered.error());
}

void Communicator::watch_for_deaths(const std::vector<int>& locals, Lives lives) {
  const auto own = std::find(locals.begin(), locals.end(), job_.rank) - locals.begin();
  Trunk* const trunk = links_->trunk().get();  // ends the watch before it ends itself
  trunk->watch(DeathWatch::start(
      static_cast<int>(own), std::move(lives),
      [trunk, locals](int local) { trunk->died(locals[static_cast<std::size_t>(local)]); }));
}

// Takes memory in which ranks of this host stage, besides their initial segments.
Trunk::TakeMemory Communicator::memory_from(const std::shared_ptr<HostMemory>& memory,
                                            const std::vector<int>& locals) {
  if (!memory) return nullptr;
  return [memory, locals](int peer, std::uint64_t word, const UniqueFd& descriptor) {
    const auto place = std::find(locals.begin(), locals.end(), peer);
    if (place == locals.end()) return;
    memory->take(static_cast<int>(place - locals.begin()), word, descriptor);
  };
}

// Groups of ranks of this host stage in the same memory.
void Communicator::share_memory(const std::shared_ptr<HostMemory>& memory,
                                const std::vector<int>& locals) {
  if (!memory) return;
  host_memory_ = memory;
  host_ranks_.assign(static_cast<std::size_t>(job_.size), -1);
  for (std::size_t i = 0; i < locals.size(); ++i) {
    host_ranks_[static_cast<std::size_t>(locals[i])] = static_cast<int>(i);
  }
  const std::weak_ptr<Trunk> to = links_->trunk();
  memory->pass_by([to, locals](int rank, std::uint64_t word, int descriptor) {
    const auto trunk = to.lock();
    if (!trunk) return;
    const std::string frame =
        encode({.type = LinkFrame::Type::memory, .rank = -1, .seq = word, .text = ""});
    trunk->tell(locals[static_cast<std::size_t>(rank)], frame, descriptor);
  });
}

CallRoll Communicator::call_roll() {
  return [this](std::uint64_t seq) { return links_ ? links_->call_roll(seq) : RollCall{}; };
}

// Null also with --verify, which names the rank that gave wrong bytes only where no other rank
// passes them on.
std::shared_ptr<const RankGroups> Communicator::racks_of(const Bootstrapped& ready,
                                                         const std::vector<int>& host_of) const {
  if (job_.verify != VerifyMode::off) return nullptr;
  std::vector<std::string> racks;
  for (const RankFacts& rank : ready.facts) racks.push_back(rank.rack);
  return rack_groups(racks, host_of);
}

// Shared memory on each host and sockets between them, if all ranks agree that it works.
Result<void> Communicator::layer(Bootstrapped& ready, StreamPlane& between) {
  Duration round_trip{};
  for (const RankFacts& told : ready.facts) {
    round_trip = std::max(round_trip, told.round_trip);
    if (told.codec == job_.codec) continue;
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("init: rank {} and rank {} have different wire codecs",
                                     job_.rank, told.rank),
                 .rank = told.rank};
  }
  failpoint("communicator.planned");
  const std::vector<int> host_of = first_on_host(ready.facts);
  const RankGroups hosts(host_of);
  between.plan_for(round_trip, racks_of(ready, host_of), hosts.groups() < job_.size);
  const bool several = ready.locals.size() > 1;
  if (!hosts.even() || (several && !ready.shared)) {
    static std::atomic<bool> warned{false};  // one warning is enough for all groups
    if (job_.codec != WireCodec::none && hosts.groups() > 1 && job_.rank == 0 &&
        !warned.exchange(true)) {
      log_warn("no wire codec is used: {}", hosts.even() ? "ranks of a host share no memory"
                                                         : "hosts have different numbers of ranks");
    }
    return {};
  }
  if (!several && job_.codec == WireCodec::none) return {};
  if (several) hosts_ = host_of;
  plane_ = make_layered_plane(job_.rank, hosts, std::move(ready.shm), std::move(plane_), abort_,
                              job_.codec, call_roll());
  return {};
}

void Communicator::on_forked() {
  forked_ = true;
  ThreadPool::on_forked();
  if (links_) links_->close_in_child();
  if (messenger_) messenger_->close_in_child();
  if (plane_) plane_->close_in_child();
  if (sockets_) sockets_->close_in_child();
}

void Communicator::on_exit() {
  if (links_) links_->say_goodbye();
  if (sockets_) sockets_->on_exit();
}

// Leaves a note for the launcher, which then knows that this rank's failure is a consequence.
void Communicator::note_peer_lost(const Error& error) {
  if (!noted_.exchange(true)) leave_note("peer_lost", error);
}

// Leaves a note with the rank whose data are corrupt, so that the launcher can end it. For the
// others that rank is a lost one, too.
void Communicator::note_corrupt(const Error& error) {
  const bool another = error.rank >= 0 && error.rank != job_.rank;
  if (error.rank == job_.rank) corrupt_->raise(error);
  if (noted_.exchange(true)) return;
  leave_note("corrupt", error);
  if (another) leave_note("peer_lost", error);
}

void Communicator::leave_note(const char* name, const Error& error) {
  if (job_.round_dir.empty()) return;
  const std::string path =
      job_.round_dir + "/" + name + "." + std::to_string(job_.world_rank(job_.rank));
  const std::string fresh = path + ".new";
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string note = std::to_string(job_.world_rank(error.rank)) + "\n" + error.what + "\n";
  if (fd && ::write(fd.get(), note.data(), note.size()) == static_cast<ssize_t>(note.size())) {
    ::rename(fresh.c_str(), path.c_str());
  }
}

}  // namespace dlaunch

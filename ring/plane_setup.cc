// Making a communicator, choosing its planes, and ending it.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "ring/bootstrap.h"
#include "ring/communicator.h"
#include "ring/hosts/layered_plane.h"
#include "ring/links/descriptor_limit.h"
#include "ring/stream/stream_plane.h"

namespace dlaunch {
namespace {

// Each peer takes up to three descriptors, and more if several sockets lead to it: the usual limit
// of 1,024 is too low for a few hundred ranks, or many groups. Behind a tunnel for TLS each counts
// as three.
std::size_t descriptors_of(const JobView& job) {
  return static_cast<std::size_t>(job.size) * (job.tls ? 40 : 10);
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

// The sockets to all peers, by purpose.
struct Communicator::Sockets {
  std::vector<Links::Peer> links;
  std::vector<UniqueFd> data, messages;
  std::vector<std::vector<UniqueFd>> more_data;
  bool one_host = false;
};

Communicator::Sockets Communicator::take_sockets(Mesh& mesh) {
  Sockets taken;
  taken.one_host = mesh.one_host();
  for (auto& peer : mesh.peers) {
    data_sockets_.push_back(peer.data.get());
    for (const auto& more : peer.more_data) data_sockets_.push_back(more.get());
    who_.push_back(peer.who);
    taken.links.push_back({std::move(peer.who), std::move(peer.link)});
    taken.data.push_back(std::move(peer.data));
    taken.more_data.push_back(std::move(peer.more_data));
    taken.messages.push_back(std::move(peer.messages));
  }
  return taken;
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
  Sockets sockets = take_sockets(ready->mesh);
  if (auto ok = open_planes(*ready, sockets); !ok) return ok;
  auto watched = start_links(*ready, std::move(sockets.links));
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

Result<std::unique_ptr<Links>> Communicator::start_links(Bootstrapped& ready,
                                                         std::vector<Links::Peer> peers) {
  const auto naming = [this](Error error) { return named_in_job(std::move(error)); };
  auto memory = memory_from(ready.memory, ready.locals);
  if (!ready.mesh.listener) {
    return Links::start(job_.rank, std::move(peers), abort_, job_.link_timeout, naming,
                        std::move(memory));
  }
  return Links::start_few(
      job_.rank, std::move(peers),
      {job_.link_graph(), std::move(ready.mesh.listener), std::move(ready.contacts)}, abort_,
      naming, std::move(memory));
}

void Communicator::tell_of_loss(int peer) const {
  const std::string& who = who_[static_cast<std::size_t>(peer)];
  log_warn(
      "{} does not acknowledge data: its host is cut off, or large packets are lost on the way "
      "('dlaunch doctor' looks for unequal MTUs)",
      who);
}

// Opens the planes of messages, and of collectives: shared memory, sockets, or both with several
// hosts.
Result<void> Communicator::open_planes(Bootstrapped& ready, Sockets& sockets) {
  const StreamOptions options{.local_ranks = static_cast<int>(locals_.size()),
                              .usable_cores = ready.cores,
                              .agreed_cores = ready.least_cores,
                              .sent_in_vain = [this](int peer) { tell_of_loss(peer); }};
  const auto open = [&](std::vector<UniqueFd> ends, std::vector<std::vector<UniqueFd>> more = {}) {
    return SocketGroup::open(job_.rank, job_.size, job_.round, std::move(ends), abort_, options,
                             std::move(more));
  };
  if (ready.shared && sockets.one_host) {
    plane_ = std::move(ready.shm);
    regions_ = std::move(ready.regions);
    return {};
  }
  auto for_messages = open(std::move(sockets.messages));
  if (!for_messages) return for_messages.error();
  messenger_ = std::make_unique<Messenger>(std::move(*for_messages));
  auto for_data = open(std::move(sockets.data), std::move(sockets.more_data));
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
  if (sockets.one_host) return {};
  // Do it before the links are watched: a rank that has finished this may leave or abort at once,
  // and slower ranks must still get its facts.
  auto layered = layer(ready.locals, ready.shared, std::move(ready.shm), between);
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

// Shared memory on each host and sockets between them, if all ranks agree that it works.
Result<void> Communicator::layer(const std::vector<int>& locals, bool shared,
                                 std::unique_ptr<Plane> local, StreamPlane& between) {
  struct Told {
    std::int32_t host = 0;  // the first rank there
    std::int32_t codec = 0;
    std::int64_t round_trip_ns = 0;
  };
  const Told own{.host = locals.front(),
                 .codec = static_cast<std::int32_t>(job_.codec),
                 .round_trip_ns = between.round_trip().count()};
  std::vector<Told> told(static_cast<std::size_t>(job_.size));
  failpoint("communicator.connected");
  const TimePoint now = steady_now();
  auto exchanged = plane_->run({.collective = Collective::all_gather,
                                .in = &own,
                                .out = told.data(),
                                .count = sizeof own,
                                .dtype = DL_UINT8,
                                .deadline = deadline_after(now, job_.init_timeout),
                                .begun = now});
  if (!exchanged) {
    Error error = exchanged.error();
    error.what = "init: " + error.what;
    return error;
  }
  std::vector<int> host_of;
  Duration round_trip{};
  for (std::size_t r = 0; r < told.size(); ++r) {
    host_of.push_back(told[r].host);
    round_trip = std::max(round_trip, Duration(told[r].round_trip_ns));
    if (told[r].codec == own.codec) continue;
    return Error{
        .code = Errc::mismatch,
        .what = fmt::format("init: rank {} and rank {} have different wire codecs", job_.rank, r),
        .rank = static_cast<int>(r)};
  }
  failpoint("communicator.planned");
  between.plan_for(round_trip);
  const HostMap hosts(host_of);
  const bool several = locals.size() > 1;
  if (!hosts.even() || (several && !shared)) {
    static std::atomic<bool> warned{false};  // one warning is enough for all groups
    if (job_.codec != WireCodec::none && hosts.hosts() > 1 && job_.rank == 0 &&
        !warned.exchange(true)) {
      log_warn("no wire codec is used: {}", hosts.even() ? "ranks of a host share no memory"
                                                         : "hosts have different numbers of ranks");
    }
    return {};
  }
  if (!several && job_.codec == WireCodec::none) return {};
  plane_ = make_layered_plane(job_.rank, hosts, std::move(local), std::move(plane_), abort_,
                              job_.codec, call_roll());
  return {};
}

void Communicator::on_forked() {
  forked_ = true;
  ThreadPool::on_forked();
  if (links_) links_->close_in_child();
  if (messenger_) messenger_->close_in_child();
  for (const int fd : data_sockets_) {
    if (fd >= 0) ::close(fd);
  }
}

void Communicator::on_exit() {
  if (links_) links_->say_goodbye();
}

// Leaves a note for the launcher, which then knows that this rank's failure is a consequence.
void Communicator::note_peer_lost(const Error& error) {
  if (noted_.exchange(true)) return;
  if (job_.round_dir.empty()) return;
  const std::string path =
      job_.round_dir + "/peer_lost." + std::to_string(job_.world_rank(job_.rank));
  const std::string fresh = path + ".new";
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string note = std::to_string(job_.world_rank(error.rank)) + "\n" + error.what + "\n";
  if (fd && ::write(fd.get(), note.data(), note.size()) == static_cast<ssize_t>(note.size())) {
    ::rename(fresh.c_str(), path.c_str());
  }
}

}  // namespace dlaunch

#include "ring/communicator.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server_thread.h"
#include "ring/mesh.h"
#include "ring/reduce.h"
#include "ring/shm_plane.h"

namespace dlaunch {
namespace {

Error usage(std::string what) { return Error{.code = Errc::usage, .what = std::move(what)}; }

// The store of a job started by hand, served by its rank 0. It lives as long as the process: slower
// ranks may still be reading when this one is done, and the next communicator meets there again.
Result<void> host_store(const JobView& job, const Secret& secret) {
  static std::mutex mutex;
  static auto* const hosted = new std::map<std::string, std::unique_ptr<StoreServerThread>>;
  const std::lock_guard lock(mutex);
  if (hosted->contains(job.store_url)) return {};
  auto endpoint = parse_endpoint(std::string_view(job.store_url).substr(6));
  if (!endpoint) return endpoint.error();
  auto server = StoreServerThread::start(*endpoint, job.job_id, secret);
  if (!server) return server.error();
  hosted->emplace(job.store_url, std::move(*server));
  return {};
}

// The k-th communicator of every rank's process meets the k-th of the others.
std::uint64_t next_communicator() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

int usable_cores(const JobView& job) {
  if (job.local_cores > 0) return job.local_cores;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// A world of one: the reduction of one operand.
Result<void> run_alone(const Call& call) {
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  if (bytes > 0 && call.in != call.out) std::memmove(call.out, call.in, bytes);
  return {};
}

struct Range {
  const char* begin;
  std::size_t bytes;
  bool overlaps(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes &&
           other.begin < begin + bytes;
  }
};

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::join(const JobView& job) {
  std::unique_ptr<Communicator> comm(new Communicator(job));
  if (job.size > 1) {
    if (auto ok = comm->connect(); !ok) return ok.error();
  }
  return comm;
}

Communicator::~Communicator() { links_.reset(); }

Result<void> Communicator::connect() {
  const auto deadline = deadline_after(steady_now(), job_.init_timeout);
  Secret secret;
  if (!job_.secret_file.empty()) {
    auto loaded = Secret::load(job_.secret_file);
    if (!loaded) return loaded.error();
    secret = std::move(*loaded);
  }
  if (job_.hosts_store) {
    if (auto ok = host_store(job_, secret); !ok) return ok.error();
  }
  const std::string who =
      "rank " + std::to_string(job_.rank) + " (pid " + std::to_string(::getpid()) + ")";
  auto store = open_store(job_.store_url, {job_.job_id, secret, who}, deadline);
  if (!store) return store.error();
  const std::string prefix =
      "ring/r" + std::to_string(job_.round) + "/c" + std::to_string(next_communicator());
  auto mesh = connect_mesh(job_, secret, **store, prefix, deadline);
  if (!mesh) return mesh.error();

  if (job_.transport != "tcp" && mesh->one_host()) {
    if (auto ok = share_memory(*mesh, deadline); !ok) return ok;
  }
  if (job_.transport == "shm" && !shm_) {
    return Error{.code = Errc::unsupported,
                 .what =
                     "transport shm: the ranks are not all on one host, or it has no memory to "
                     "share"};
  }
  std::vector<Links::Peer> links;
  std::vector<UniqueFd> data;
  for (auto& peer : mesh->peers) {
    links.push_back({std::move(peer.who), std::move(peer.link)});
    data.push_back(std::move(peer.data));
  }
  auto stream = make_stream_plane(job_.rank, job_.size, job_.round, std::move(data), abort_,
                                  {.local_ranks = job_.size, .usable_cores = usable_cores(job_)});
  if (!stream) return stream.error();
  stream_ = std::move(*stream);
  auto watched = Links::start(job_.rank, std::move(links), abort_);
  if (!watched) return watched.error();
  links_ = std::move(*watched);
  return {};
}

// Every rank votes with every other, so that all come to the same answer: one rank without memory
// sends all to the sockets.
Result<void> Communicator::share_memory(Mesh& mesh, TimePoint deadline) {
  auto own = make_shm_data(job_.size);
  Result<UniqueFd> control = job_.rank == 0 ? make_shm_control(job_.size) : UniqueFd();
  bool agreed = own.has_value() && control.has_value();
  if (!agreed) {
    log_warn("rank {}: {}; using sockets instead", job_.rank,
             own ? control.error().what : own.error().what);
  }
  for (const auto& peer : mesh.peers) {
    if (!peer.link) continue;
    std::vector<int> fds;
    if (agreed) fds.push_back(own->fd.get());
    if (agreed && job_.rank == 0) fds.push_back(control->get());
    const bool vote = own.has_value() && control.has_value();
    if (auto sent = send_descriptors(peer.link.get(), vote, fds, deadline); !sent) return sent;
  }
  std::vector<UniqueFd> data(mesh.peers.size());
  for (std::size_t r = 0; r < mesh.peers.size(); ++r) {
    if (!mesh.peers[r].link) continue;
    auto got = receive_descriptors(mesh.peers[r].link.get(), deadline);
    if (!got) return got.error();
    const std::size_t expected = r == 0 ? 2 : 1;
    if (!got->agreed || got->fds.size() != expected) {
      agreed = false;
      continue;
    }
    data[r] = std::move(got->fds[0]);
    if (r == 0) control = std::move(got->fds[1]);
  }
  if (!agreed) return {};
  auto plane = make_shm_plane(job_.rank, job_.size, *control, std::move(*own), std::move(data),
                              abort_, {.usable_cores = usable_cores(job_)});
  if (!plane) return plane.error();
  shm_ = std::move(*plane);
  return {};
}

const char* Communicator::transport() const {
  if (job_.size == 1) return "self";
  return shm_ ? shm_->name() : stream_->name();
}

int Communicator::peer_lost() const {
  if (!abort_.raised()) return -1;
  const Error error = abort_.error();
  return error.code == Errc::peer_lost ? error.rank : -1;
}

TimePoint Communicator::op_deadline() const {
  return deadline_after(steady_now(), job_.op_timeout);
}

Result<void> Communicator::check(const Call& call) const {
  const std::string name(collective_name(call.collective));
  const std::size_t element = dtype_bytes(call.dtype);
  const auto n = static_cast<std::size_t>(job_.size);
  if (element == 0) return usage(name + ": dtype is not a dl_dtype");
  if (call.op < DL_SUM || call.op > DL_BXOR) return usage(name + ": op is not a dl_op");
  if (call.count > PTRDIFF_MAX / element / n) return usage(name + ": count is too large");
  if (call.collective == Collective::barrier) return {};
  if (call.count > 0 && (call.in == nullptr || call.out == nullptr)) {
    return usage(name + ": a buffer is null");
  }
  if (call.collective == Collective::broadcast) {
    if (call.root < 0 || call.root >= job_.size) {
      return usage(name + ": root " + std::to_string(call.root) + " is not a rank");
    }
    return {};
  }
  const bool reduces = call.collective != Collective::all_gather;
  if (reduces && !reducible(call.dtype, call.op)) {
    return Error{.code = Errc::unsupported,
                 .what = name + ": " + std::string(op_name(call.op)) + " of " +
                         std::string(dtype_name(call.dtype)) + " has no meaning"};
  }
  const bool scatter = call.collective == Collective::reduce_scatter;
  const bool gather = call.collective == Collective::all_gather;
  const std::size_t bytes = call.count * element;
  const Range in{static_cast<const char*>(call.in), scatter ? bytes * n : bytes};
  const Range out{static_cast<const char*>(call.out), gather ? bytes * n : bytes};
  const std::size_t share = bytes * static_cast<std::size_t>(job_.rank);
  const bool in_place = scatter  ? out.begin == in.begin + share
                        : gather ? in.begin == out.begin + share
                                 : in.begin == out.begin;
  if (!in_place && in.overlaps(out)) {
    return usage(name + ": in and out overlap without being in place");
  }
  return {};
}

Result<void> Communicator::collective(Call call) {
  if (abort_.raised()) return finish(abort_.error());
  if (auto ok = check(call); !ok) return ok;
  if (job_.size == 1) return run_alone(call);
  call.seq = ++seq_;
  call.deadline = op_deadline();
  links_->enter(call.seq);
  return finish(shm_ ? shm_->run(call) : stream_->run(call));
}

Result<void> Communicator::transfer(Message message) {
  if (abort_.raised()) return finish(abort_.error());
  const char* name = message.is_send ? "send" : "recv";
  const std::size_t element = dtype_bytes(message.dtype);
  if (element == 0) return usage(std::string(name) + ": dtype is not a dl_dtype");
  if (message.count > PTRDIFF_MAX / element)
    return usage(std::string(name) + ": count is too large");
  if (message.count > 0 && message.send == nullptr && message.recv == nullptr) {
    return usage(std::string(name) + ": the buffer is null");
  }
  if (message.peer < 0 || message.peer >= job_.size || message.peer == job_.rank) {
    return usage(std::string(name) + ": peer " + std::to_string(message.peer) +
                 " is not another rank");
  }
  if (message.tag < 0) return usage(std::string(name) + ": the tag is negative");
  message.deadline = op_deadline();
  return finish(stream_->transfer(message));
}

// The first failure ends the communicator for everybody: peers that wait in the same operation
// would otherwise do so until their own deadline.
Result<void> Communicator::finish(Result<void> done) {
  if (done) return done;
  if (!abort_.raised()) links_->abort(done.error());
  const Error error = abort_.error();
  if (error.code == Errc::peer_lost) note_peer_lost(error);
  return error;
}

void Communicator::abort() {
  const Error error{
      .code = Errc::aborted, .what = "dl_abort() was called on this rank", .rank = -1};
  if (links_)
    links_->abort(error);
  else
    abort_.raise(error);
}

// Leaves a note for the launcher, which then knows this rank's failure for a consequence.
void Communicator::note_peer_lost(const Error& error) {
  if (noted_ || job_.round_dir.empty()) return;
  noted_ = true;
  const std::string path = job_.round_dir + "/peer_lost." + std::to_string(job_.rank);
  const std::string fresh = path + ".new";
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string note = std::to_string(error.rank) + "\n" + error.what + "\n";
  if (fd && ::write(fd.get(), note.data(), note.size()) == static_cast<ssize_t>(note.size())) {
    ::rename(fresh.c_str(), path.c_str());
  }
}

}  // namespace dlaunch

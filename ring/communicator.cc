#include "ring/communicator.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/rank_set.h"
#include "ring/layered_plane.h"
#include "ring/meeting.h"
#include "ring/reduce.h"
#include "ring/stream_errors.h"
#include "ring/stream_plane.h"

namespace dlaunch {
namespace {

// Each peer takes three descriptors, and more where several sockets lead to it: for a few hundred
// ranks the usual limit of 1,024 does not do. Behind a tunnel for TLS each of them is three.
void allow_descriptors(const JobView& job) {
  rlimit limit{};
  const auto needed = static_cast<rlim_t>(job.size) * (job.tls ? 40 : 10) + 128;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Error usage(std::string what) { return Error{.code = Errc::usage, .what = std::move(what)}; }

// A world of one: the reduction of one operand, or its delivery to itself.
Result<void> run_alone(const Call& call) {
  const std::size_t element = dtype_bytes(call.dtype);
  const auto move = [&](void* to, const void* from, std::size_t count) {
    if (count > 0 && to != from) std::memmove(to, from, count * element);
  };
  if (call.list == nullptr) {
    move(call.out, call.in, call.count);
    return {};
  }
  for (std::size_t i = 0, begin = 0; i < call.list->ends.size(); begin = call.list->ends[i++]) {
    move(call.list->out[i], call.list->in[i], call.list->ends[i] - begin);
  }
  return {};
}

// What a plane throws is the standard library's, for want of memory.
template <class Body>
Result<void> without_exceptions(Body body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return Error{.code = Errc::io, .what = e.what()};
  }
}

struct Range {
  const char* begin;
  std::size_t bytes;
  bool overlaps(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes &&
           other.begin < begin + bytes;
  }
};

// Where a buffer may lie in the other so that a call is in place: in bytes, `out` behind `in`.
std::ptrdiff_t in_place_distance(const Shape& shape, int rank) {
  const auto& traits = traits_of(shape.collective);
  const auto own = static_cast<std::ptrdiff_t>(part_of(shape, rank).first * shape.element_bytes);
  if (traits.in_parts == traits.out_parts) return 0;
  return traits.in_parts ? own : -own;
}

// Leaves a note for the launcher, which then knows this rank's failure for a consequence.
void note_peer_lost(const JobView& job, const Error& error) {
  if (job.round_dir.empty()) return;
  const std::string path = job.round_dir + "/peer_lost." + std::to_string(job.world_rank(job.rank));
  const std::string fresh = path + ".new";
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string note = std::to_string(job.world_rank(error.rank)) + "\n" + error.what + "\n";
  if (fd && ::write(fd.get(), note.data(), note.size()) == static_cast<ssize_t>(note.size())) {
    ::rename(fresh.c_str(), path.c_str());
  }
}

}  // namespace

Error Communicator::forked_error() {
  return usage("this process was forked from the one that joined: a communicator stays there");
}

Result<std::unique_ptr<Communicator>> Communicator::join(const JobView& job,
                                                         const AbortFlag* parent) {
  if (job.explains) set_log_level(LogLevel::info);
  std::unique_ptr<Communicator> comm(new Communicator(job));
  if (!job.group.empty()) {
    comm->group_hash_ = static_cast<std::uint32_t>(std::hash<std::string>()(job.group)) | 1;
  }
  if (job.size > 1) {
    if (auto ok = comm->connect(parent); !ok) {
      // Of a group its parent tells, which may know better who was lost.
      const bool lost = ok.error().code == Errc::peer_lost;
      if (lost && parent == nullptr) note_peer_lost(job, ok.error());
      return ok.error();
    }
    add_process_events(*comm);
  }
  return comm;
}

std::unique_ptr<Communicator> Communicator::ended(const Error& error) {
  std::unique_ptr<Communicator> comm(new Communicator(JobView()));
  comm->abort_.raise(error);
  return comm;
}

Communicator::~Communicator() {
  remove_process_events(*this);
  if (device_) (void)device_->settle();
  // Nobody can wait for what is still under way.
  if (completions_.under_way() > 0) abort();
  collectives_.stop();
  messages_.stop();
  deaths_.reset();
  links_.reset();
}

Result<void> Communicator::connect(const AbortFlag* parent) {
  allow_descriptors(job_);
  const std::string& folder = job_.round_dir;
  flight_ = FlightRecorder::of_process(
      folder.empty() ? "" : flight_file(folder, job_.world_rank(job_.rank)));
  auto met = meet(job_, abort_, parent);
  if (!met) return met.error();
  const bool one_host = met->mesh.one_host();
  std::vector<Links::Peer> links;
  std::vector<UniqueFd> data, messages;
  std::vector<std::vector<UniqueFd>> more_data;
  for (auto& peer : met->mesh.peers) {
    data_sockets_.push_back(peer.data.get());
    data_sockets_.push_back(peer.messages.get());
    who_.push_back(peer.who);
    links.push_back({std::move(peer.who), std::move(peer.link)});
    for (const auto& more : peer.more_data) data_sockets_.push_back(more.get());
    data.push_back(std::move(peer.data));
    more_data.push_back(std::move(peer.more_data));
    messages.push_back(std::move(peer.messages));
  }
  // Forced sockets hide which ranks share this host's cores: perhaps all.
  const int local_ranks =
      job_.transport == "tcp" ? job_.size : static_cast<int>(met->locals.size());
  job_.local_cores = met->cores;  // groups go by it, too
  const StreamOptions options{
      .local_ranks = local_ranks, .usable_cores = met->cores, .agreed_cores = met->least_cores};
  const auto open = [&](std::vector<UniqueFd> sockets,
                        std::vector<std::vector<UniqueFd>> more = {}) {
    return SocketGroup::open(job_.rank, job_.size, job_.round, std::move(sockets), abort_, options,
                             std::move(more));
  };
  auto for_messages = open(std::move(messages));
  if (!for_messages) return for_messages.error();
  messenger_ = std::make_unique<Messenger>(std::move(*for_messages));
  StreamPlane* between = nullptr;
  if (met->shared && one_host) {
    plane_ = std::move(met->shm);
    regions_ = std::move(met->regions);
    exchange_ = std::make_unique<ShmExchange>(job_.rank, std::move(data), abort_);
  } else {
    auto for_data = open(std::move(data), std::move(more_data));
    if (!for_data) return for_data.error();
    auto stream =
        make_stream_plane(std::move(*for_data), call_roll(), job_.plan_rules, job_.sockets > 0);
    between = stream.get();
    if (group_hash_ == 0) {
      stream->tell_links([flight = flight_](int peer, std::uint64_t bytes, Duration time) {
        flight->received(peer, bytes, time);
      });
    }
    plane_ = std::move(stream);
  }
  if (!one_host) {
    // Before the links are watched: a rank that is done with this may leave or abort at once, and
    // what it told is there all the same for those that are not.
    auto layered = layer(met->locals, met->shared, std::move(met->shm), *between);
    if (!layered) return named_in_job(layered.error());
  }
  auto watched = Links::start(job_.rank, std::move(links), abort_, job_.link_timeout,
                              [this](Error error) { return named_in_job(std::move(error)); });
  if (!watched) return watched.error();
  links_ = std::move(*watched);
  // A group ends with the communicator that it was split from.
  if (job_.group.empty() && !met->lives.words.empty()) {
    watch_for_deaths(met->locals, std::move(met->lives));
  }
  failpoint("communicator.joined");
  return {};
}

void Communicator::watch_for_deaths(const std::vector<int>& locals, Lives lives) {
  const auto own = std::find(locals.begin(), locals.end(), job_.rank) - locals.begin();
  deaths_ = DeathWatch::start(static_cast<int>(own), std::move(lives), [this, locals](int local) {
    links_->died(locals[static_cast<std::size_t>(local)]);
  });
}

CallRoll Communicator::call_roll() {
  return [this](std::uint64_t seq) { return links_ ? links_->call_roll(seq) : RollCall{}; };
}

// Shared memory on each host and sockets between them, where all ranks agree that it can be done.
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
  if (!hosts.even() || (several ? !shared : job_.codec == WireCodec::none)) return {};
  plane_ = make_layered_plane(job_.rank, hosts, std::move(local), std::move(plane_), abort_,
                              job_.codec, call_roll());
  return {};
}

void Communicator::on_forked() {
  forked_ = true;
  links_->close_in_child();
  for (const int fd : data_sockets_) {
    if (fd >= 0) ::close(fd);
  }
}

void Communicator::on_exit() { links_->say_goodbye(); }

const char* Communicator::transport() const {
  if (job_.size == 1) return "self";
  return plane_->name();
}

int Communicator::peer_lost() const {
  if (forked_ || !abort_.raised()) return -1;
  const Error error = abort_.error();
  return error.code == Errc::peer_lost ? error.rank : -1;
}

std::string Communicator::broken_by_nobody() const {
  if (forked_ || !abort_.raised()) return "";
  const Error error = abort_.error();
  return error.code == Errc::peer_lost && error.rank < 0 ? error.what : "";
}

Result<void> Communicator::check(const Call& call) {
  if (forked_) return forked_error();
  if (abort_.raised()) return finish(abort_.error());
  const auto wrong = [&](std::string_view what) {
    return usage(fmt::format("{}: {}", collective_name(call.collective), what));
  };
  const std::size_t element = dtype_bytes(call.dtype);
  const auto n = static_cast<std::size_t>(job_.size);
  if (element == 0) return wrong("dtype is not a dl_dtype");
  if (call.op < DL_SUM || call.op > DL_BXOR) return wrong("op is not a dl_op");
  if (call.count > PTRDIFF_MAX / element / n) return wrong("count is too large");
  for (std::size_t r = 0; call.counts != nullptr && r < n; ++r) {
    if (call.counts[r] > PTRDIFF_MAX / element / n) return wrong("a count is too large");
  }
  if (call.collective == Collective::barrier) return {};
  const auto& traits = traits_of(call.collective);
  if (traits.rooted && (call.root < 0 || call.root >= job_.size)) {
    return wrong(fmt::format("root {} is not a rank", call.root));
  }
  if (traits.reduces && !reducible(call.dtype, call.op)) {
    return Error{
        .code = Errc::unsupported,
        .what = fmt::format("{}: {} of {} has no meaning", collective_name(call.collective),
                            op_name(call.op), dtype_name(call.dtype))};
  }
  if (call.list != nullptr) return {};
  const Shape shape = shape_of(call, job_.size);
  const Range in{static_cast<const char*>(call.in),
                 in_count(shape, job_.rank, job_.size) * element};
  const Range out{static_cast<const char*>(call.out),
                  out_count(shape, job_.rank, job_.size) * element};
  if ((in.bytes > 0 && in.begin == nullptr) || (out.bytes > 0 && out.begin == nullptr)) {
    return wrong("a buffer is null");
  }
  if (!in.overlaps(out)) return {};
  const bool in_place = out.begin - in.begin == in_place_distance(shape, job_.rank);
  if (call.collective == Collective::all_to_all) return wrong("in and out must not overlap");
  if (!in_place) return wrong("in and out overlap without being in place");
  return {};
}

Result<void> Communicator::check(const Message& message) {
  if (forked_) return forked_error();
  if (abort_.raised()) return finish(abort_.error());
  const auto wrong = [&](std::string_view what) {
    return usage(fmt::format("{}: {}", message.is_send ? "send" : "recv", what));
  };
  const std::size_t element = dtype_bytes(message.dtype);
  if (element == 0) return wrong("dtype is not a dl_dtype");
  if (message.count > PTRDIFF_MAX / element) return wrong("count is too large");
  if (message.count > 0 && message.send == nullptr && message.recv == nullptr) {
    return wrong("the buffer is null");
  }
  const bool any = message.peer == kAnySource && !message.is_send;
  if (!any && (message.peer < 0 || message.peer >= job_.size || message.peer == job_.rank)) {
    return wrong(fmt::format("peer {} is not another rank", message.peer));
  }
  if (job_.size == 1) return wrong("this rank is alone");
  if (message.tag < 0) return wrong("the tag is negative");
  return {};
}

Result<void> Communicator::collective(Call call) {
  if (!collectives_.busy()) {
    if (auto ok = check(call); !ok) return ok;
    if (auto ok = attach(call, true); !ok) return ok;
    call.seq = ++seq_;
    return run(call);
  }
  auto started = start(call);
  return started ? wait(**started) : started.error();
}

Result<std::string> Communicator::explain(const Call& call) const {
  const auto& traits = traits_of(call.collective);
  if (dtype_bytes(call.dtype) == 0 || (traits.reduces && !reducible(call.dtype, call.op)) ||
      (traits.rooted && (call.root < 0 || call.root >= job_.size))) {
    return usage("explain: there is no such call");
  }
  return plane_ ? plane_->explain(call) : std::string("alone: a copy");
}

void Communicator::explain_once(const Call& call, const Plane& plane) {
  if (job_.rank != 0) return;
  std::string what = fmt::format("{} of {} {}{}", collective_name(call.collective), call.count,
                                 dtype_name(call.dtype), &plane == plane_.get() ? "" : " on a GPU");
  if (explained_.size() < 1000 && explained_.insert(what).second) {
    log_info("{}: {}", what, plane.explain(call));
  }
}

// A call, or a step of one, on the host's plane, which counts by itself.
Result<void> Communicator::run_step(const Call& call) {
  Call step = call;
  step.seq = ++plane_seq_;
  step.step_of = &users_call(call);
  return plane_->run(step);
}

// On the thread that carries it out.
Result<void> Communicator::run(Call call) {
  const bool on_device = call.task.device >= 0;
  if (job_.size == 1) {
    return on_device ? finish(run_on_device(call, [](bool) {})) : run_alone(call);
  }
  const TimePoint now = steady_now();
  call.begun = now;
  call.deadline = deadline_after(now, job_.op_timeout);
  links_->enter(call.seq, signature_of(call, job_.size));
  if (job_.explains && !on_device) explain_once(call, *plane_);
  const auto ticket = flight_->begin(now, call, group_hash_);
  const auto ended = [this, ticket, seq = call.seq](bool failed) {
    flight_->end(ticket, failed);
    failpoint("communicator.called");
    if (!failed) links_->complete(seq);
  };
  auto done =
      without_exceptions([&] { return on_device ? run_on_device(call, ended) : run_step(call); });
  if (job_.explains && on_device) explain_once(call, *device_);
  // In shared memory nobody sees whether a rank that has arrived stands still, or waits itself.
  if (!done && done.error().code == Errc::timeout && exchange_ && !abort_.raised()) {
    if (auto named = absent(call, waited_in(call, steady_now()))) done = *named;
  }
  if (!done || !call.task.ordered) ended(!done);
  return finish(std::move(done));
}

// Who has not come to a call whose time is up; none: all are in it.
std::optional<Error> Communicator::absent(const Call& call, Duration waited) const {
  const RollCall roll = links_->call_roll(call.seq);
  if (abort_.raised()) return abort_.error();
  return timed_out_by_roll(roll, call, waited, job_.size);
}

void Communicator::serve_collectives(OperationQueue& queue) {
  while (auto operation = queue.take()) operation->finish(run(operation->call));
}

Communicator::Started Communicator::pushed(Background& background,
                                           std::shared_ptr<Operation> operation) {
  if (auto ok = background.push(operation); !ok) {
    operation->finish(ok);
    return ok.error();
  }
  return operation;
}

Communicator::Started Communicator::start(Call call) {
  if (auto ok = check(call); !ok) return ok.error();
  if (auto ok = attach(call, false); !ok) return ok.error();
  call.seq = ++seq_;
  auto operation = std::make_shared<Operation>(completions_);
  operation->call = call;
  if (call.counts != nullptr) {
    operation->counts.assign(call.counts, call.counts + job_.size);
    operation->call.counts = operation->counts.data();
  }
  if (call.list != nullptr) {
    operation->list = *call.list;
    operation->call.list = &operation->list;
  }
  auto started = pushed(collectives_, std::move(operation));
  if (!started) --seq_;  // it was none: the ranks go on counting alike
  return started;
}

Result<void> Communicator::transfer(Message& message) {
  if (!messages_.busy()) {
    if (auto ok = check(message); !ok) return ok;
    const auto staged = stage(message);
    if (!staged) return staged.error();
    auto done = run(message);
    return done ? unstage(*staged) : done;
  }
  auto started = start(message);
  if (!started) return started.error();
  auto done = wait(**started);
  message.source = (*started)->message.source;
  return done;
}

Result<void> Communicator::run(Message& message) {
  const TimePoint now = steady_now();
  message.deadline = deadline_after(now, job_.op_timeout);
  const auto ticket = flight_->begin(now, message);
  auto done = without_exceptions([&] { return messenger_->transfer(message); });
  flight_->end(ticket, !done);
  return finish(message, std::move(done));
}

// Whoever is waited for, with a message or at a meeting, may itself wait for one that stands still.
Error Communicator::blame_silent(Error error) const {
  if (error.code != Errc::timeout || abort_.raised()) return error;
  const RankSet silent = links_->call_roll(0).silent;
  if (abort_.raised()) return abort_.error();
  if (silent.empty()) return error;
  if (!silent.contains(error.rank)) error.rank = *silent.begin();
  if (error.what.find(who_[static_cast<std::size_t>(error.rank)]) == std::string::npos) {
    error.what += fmt::format(": no answer from rank {}", format_rank_set(silent));
  }
  return error;
}

Communicator::Started Communicator::start(Message message) {
  if (auto ok = check(message); !ok) return ok.error();
  auto staged = stage(message);
  if (!staged) return staged.error();
  message.deadline = deadline_after(steady_now(), job_.op_timeout);
  auto operation = std::make_shared<Operation>(completions_);
  operation->is_message = true;
  operation->staged = std::move(*staged);
  operation->message = message;
  return pushed(messages_, std::move(operation));
}

Result<void> Communicator::wait(const Operation& operation) {
  completions_.wait([&] { return operation.done(); });
  if (!operation.is_message) return operation.outcome();
  auto done = finish(operation.message, operation.outcome());
  return done ? unstage(operation.staged) : done;
}

void Communicator::wait_any(const std::vector<const Operation*>& operations) {
  completions_.wait([&] {
    return std::any_of(operations.begin(), operations.end(),
                       [](const Operation* operation) { return operation->done(); });
  });
}

Result<void> Communicator::finish(const Message& message, Result<void> done) {
  if (!done && done.error().code == Errc::peer_lost && message.peer >= 0 &&
      links_->has_left(message.peer)) {
    Error error = done.error();
    error.what += ": it has left in good order";
    done = std::move(error);
  } else if (!done) {
    done = blame_silent(done.error());
  }
  return finish(std::move(done));
}

// -- Memory that the others read where it lies

// Tells the others whether this rank has what it needs, and learns how much each of them has.
Result<std::vector<std::size_t>> Communicator::all_have(std::size_t bytes,
                                                        const Result<void>& own) {
  struct Told {
    std::uint64_t bytes = 0;
    char lacks[120] = "";
  };
  Told told{.bytes = bytes};
  if (!own) told.lacks[own.error().what.copy(told.lacks, sizeof told.lacks - 1)] = '\0';
  std::vector<Told> all(static_cast<std::size_t>(job_.size));
  auto exchanged = collective({.collective = Collective::all_gather,
                               .in = &told,
                               .out = all.data(),
                               .count = sizeof told,
                               .dtype = DL_UINT8});
  if (!exchanged) return exchanged.error();
  std::vector<std::size_t> sizes;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].lacks[0] != '\0') {
      return Error{.code = Errc::io,
                   .what = fmt::format("dl_alloc: rank {}: {}", r, all[r].lacks),
                   .rank = static_cast<int>(r)};
    }
    sizes.push_back(static_cast<std::size_t>(all[r].bytes));
  }
  return sizes;
}

Result<std::shared_ptr<void>> Communicator::allocate(std::size_t bytes) {
  if (forked_) return forked_error();
  if (abort_.raised()) return finish(abort_.error()).error();
  constexpr std::size_t kPage = 4096;
  if (bytes > PTRDIFF_MAX - kPage) return usage("dl_alloc: so much memory does not exist");
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  if (!regions_) {
    void* const memory = std::aligned_alloc(kPage, whole);
    if (memory == nullptr) return Error{.code = Errc::io, .what = "dl_alloc: out of memory"};
    std::memset(memory, 0, whole);
    return std::shared_ptr<void>(memory, std::free);
  }
  auto own = make_shm_segment("dlring-memory", whole);
  const auto sizes = all_have(whole, own ? Result<void>() : own.error());
  if (!sizes) return sizes.error();
  const auto memory = own->writable;
  auto region =
      exchange_->exchange(std::move(*own), *sizes, deadline_after(steady_now(), job_.op_timeout));
  if (!region && region.error().code != Errc::io) return finish(region.error()).error();
  const auto mapped = all_have(whole, region ? Result<void>() : region.error());
  if (!mapped) return mapped.error();
  regions_->add(std::move(*region));
  return memory;
}

void Communicator::release(const void* memory) {
  if (regions_) regions_->remove(memory);
}

// A group numbers its ranks in its own way, which nobody who reads the error may know.
Error Communicator::named_in_job(Error error) const {
  if (job_.group.empty() || error.rank < 0 || who_.empty()) return error;
  const std::string& name = who_[static_cast<std::size_t>(error.rank)];
  if (error.what.find(name) != std::string::npos) return error;
  error.what += fmt::format("; rank {} of this group is {}", error.rank, name);
  return error;
}

// The first failure ends the communicator for everybody: peers that wait in the same operation
// would otherwise do so until their own deadline.
Result<void> Communicator::finish(Result<void> done) {
  if (done) return done;
  const Error first = abort_.raised() ? abort_.error() : named_in_job(done.error());
  failpoint("communicator.fails");
  if (links_) links_->abort(first);  // tells the others, once
  abort_.raise(first);
  const Error error = abort_.error();
  if (error.code == Errc::peer_lost && !noted_.exchange(true)) note_peer_lost(job_, error);
  return error;
}

void Communicator::abort() {
  if (forked_) return;
  const Error error{
      .code = Errc::aborted, .what = "dl_abort() was called on this rank", .rank = -1};
  if (links_)
    links_->abort(error);
  else
    abort_.raise(error);
}

}  // namespace dlaunch

#include "ring/communicator.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/rank_set.h"
#include "ring/call/overlap.h"
#include "ring/kernels/reduce.h"
#include "ring/shm/shm_memory.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {
namespace {

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

Error wrong_call(const Call& call, std::string_view what) {
  return usage_error(fmt::format("{}: {}", collective_name(call.collective), what));
}

// Checks that such a call exists, whatever its buffers.
Result<void> check_kind(const Call& call, int ranks) {
  const std::size_t element = dtype_bytes(call.dtype);
  const auto n = static_cast<std::size_t>(ranks);
  if (element == 0) return wrong_call(call, "dtype is not a dl_dtype");
  const auto& traits = traits_of(call.collective);
  const bool is_own = call.op >= DL_SUM && call.op <= DL_BXOR;
  if (traits.reduces && !is_own && call.program_op == nullptr) {
    return wrong_call(call, "op is not a dl_op, nor one of dl_op_create()");
  }
  if (call.count > PTRDIFF_MAX / element / n) return wrong_call(call, "count is too large");
  const auto too_large = [&](std::size_t count) { return count > PTRDIFF_MAX / element / n; };
  bool all_fit = call.counts == nullptr || std::none_of(call.counts, call.counts + n, too_large);
  if (call.splits != nullptr) {
    for (const auto* parts : {&call.splits->given, &call.splits->taken}) {
      for (const Part& part : *parts) all_fit = all_fit && !too_large(part.count);
    }
  }
  if (!all_fit) return wrong_call(call, "a count is too large");
  if (traits.rooted && (call.root < 0 || call.root >= ranks)) {
    return wrong_call(call, fmt::format("root {} is not a rank", call.root));
  }
  const bool is_scan = call.collective == Collective::scan || call.collective == Collective::exscan;
  if (traits.reduces && (!reducible(call.dtype, call.op) || (is_scan && call.op == DL_AVG))) {
    return Error{
        .code = Errc::unsupported,
        .what = fmt::format("{}: {} of {} has no meaning", collective_name(call.collective),
                            op_name(call.op), dtype_name(call.dtype))};
  }
  return {};
}

// The distance at which a call is in place: in bytes, from `in` to `out`.
std::ptrdiff_t in_place_distance(const Shape& shape, int rank) {
  const auto& traits = traits_of(shape.collective);
  const auto own = static_cast<std::ptrdiff_t>(part_of(shape, rank).first * shape.element_bytes);
  if (traits.in_parts == traits.out_parts) return 0;
  return traits.in_parts ? own : -own;
}

constexpr std::size_t kPage = 4096;

// Whole pages, zeroed.
Result<std::shared_ptr<void>> ordinary_memory(std::size_t bytes) {
  void* const memory = lacks_memory(bytes) ? nullptr : std::aligned_alloc(kPage, bytes);
  if (memory == nullptr) return errno_error(fmt::format("allocate {} MiB", bytes >> 20), ENOMEM);
  std::memset(memory, 0, bytes);
  return std::shared_ptr<void>(memory, std::free);
}

}  // namespace

// Finds the operation of the program that the call's number stands for, if any.
void Communicator::find_program_op(Call& call) {
  if (!is_function(call.op) || call.program_op != nullptr) return;
  call.program_op = program_op(call.op);
  if (call.program_op != nullptr && call.program_op->function == nullptr) call.op = kPremulSum;
}

Error Communicator::forked_error() {
  return usage_error(
      "this process was forked from the one that joined, and only that one can use the "
      "communicator");
}

const char* Communicator::transport() const {
  if (job_.size == 1) return "self";
  return plane_->name();
}

int Communicator::peer_lost() const {
  if (forked_ || !abort_.raised()) return -1;
  const Error error = abort_.error();
  const bool corrupt = error.code == Errc::corrupt && error.rank != job_.rank;
  return error.code == Errc::peer_lost || corrupt ? error.rank : -1;
}

std::optional<Error> Communicator::corrupt_here() const {
  return corrupt_->raised() ? std::optional(corrupt_->error()) : std::nullopt;
}

std::optional<Error> Communicator::over() const {
  if (forked_) return forked_error();
  return abort_.raised() ? std::optional(abort_.error()) : std::nullopt;
}

std::string Communicator::broken_by_nobody() const {
  if (forked_ || !abort_.raised()) return "";
  const Error error = abort_.error();
  const bool broken = error.code == Errc::peer_lost || error.code == Errc::corrupt;
  return broken && error.rank < 0 ? error.what : "";
}

Result<void> Communicator::check(const Call& call) {
  if (forked_) return forked_error();
  if (abort_.raised()) return finish(abort_.error());
  if (auto ok = check_kind(call, job_.size); !ok) return ok;
  if (call.collective == Collective::barrier) return {};
  const auto wrong = [&](std::string_view what) { return wrong_call(call, what); };
  const std::size_t element = dtype_bytes(call.dtype);
  const auto& traits = traits_of(call.collective);
  if (call.shards != nullptr) return check_shards(call);
  if (call.some != nullptr) return check_some(call);
  if (call.list != nullptr) {
    // A broadcast reads the root's tensors and writes the others': one may be there twice.
    const std::string overlap = traits.reduces ? overlap_in(*call.list, element) : "";
    return overlap.empty() ? Result<void>() : wrong(overlap);
  }
  const Shape shape = shape_of(call, job_.size);
  const MemoryRange in{static_cast<const char*>(call.in),
                       in_count(shape, job_.rank, job_.size) * element};
  const MemoryRange out{static_cast<const char*>(call.out),
                        out_count(shape, job_.rank, job_.size) * element};
  if ((in.bytes > 0 && in.begin == nullptr) || (out.bytes > 0 && out.begin == nullptr)) {
    return wrong("a buffer is null");
  }
  if (call.compression != nullptr && call.compression->residual != nullptr) {
    const MemoryRange kept{reinterpret_cast<const char*>(call.compression->residual), out.bytes};
    if (kept.overlaps(in) || kept.overlaps(out)) return wrong("residual overlaps in or out");
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
    return usage_error(fmt::format("{}: {}", message.is_send ? "send" : "recv", what));
  };
  const std::size_t element = dtype_bytes(message.dtype);
  if (element == 0) return wrong("dtype is not a dl_dtype");
  if (message.count > PTRDIFF_MAX / element) return wrong("count is too large");
  if (message.count > 0 && message.send == nullptr && message.recv == nullptr) {
    return wrong("the buffer is null");
  }
  const bool any = message.peer == kAnySource && !message.is_send;
  if (!any && (message.peer < 0 || message.peer >= job_.size || message.peer == job_.rank)) {
    return wrong(message.peer < 0 ? "the peer is no rank"
                                  : fmt::format("peer {} is not another rank", message.peer));
  }
  if (job_.size == 1) return wrong("this rank is alone");
  if (message.tag < 0) return wrong("the tag is negative");
  // The kernel may accept data that no rank reads any longer.
  if (message.is_send && links_->has_left(message.peer)) {
    return finish(message, connection_failed(message.peer, activity_of(message), 0));
  }
  return {};
}

Result<void> Communicator::collective(Call call) {
  if (auto ok = refuse_in_batch(); !ok) return ok;
  find_program_op(call);
  if (!collectives_.busy()) {
    if (auto ok = check(call); !ok) return ok;
    if (auto ok = attach(call, true); !ok) return ok;
    return run_next(std::move(call));
  }
  auto started = start(call);
  return started ? wait(**started) : started.error();
}

Result<void> Communicator::run_next(Call call) {
  call.seq = ++seq_;
  call.limit = op_timeout_;
  return run(std::move(call), SpanKind::call);
}

Result<std::unique_ptr<const KeptCall>> Communicator::prepare(Call call) {
  find_program_op(call);
  if (auto ok = check(call); !ok) return ok.error();
  auto attached = call;
  if (auto ok = attach(attached, false); !ok) return ok.error();
  auto prepared = std::make_unique<KeptCall>();
  prepared->keep(call, job_.size);
  prepared->on_device = attached.task.device >= 0;
  return std::unique_ptr<const KeptCall>(std::move(prepared));
}

// What may have changed since prepare(): the communicator, and the stream.
Result<void> Communicator::repeat(const KeptCall& prepared) {
  if (forked_ || abort_.raised() || batch_ || prepared.on_device || collectives_.busy()) {
    return collective(prepared.call);
  }
  return run_next(prepared.call);
}

Result<std::string> Communicator::explain(const Call& given) const {
  Call call = given;
  find_program_op(call);
  if (auto ok = check_kind(call, job_.size); !ok) return usage_error("explain: " + ok.error().what);
  if (!plane_) return std::string("alone: a copy");
  return way_of(call, *plane_);
}

std::string Communicator::way_of(const Call& call, const Plane& plane) const {
  if (&plane != plane_.get()) return plane.explain(call);  // on a GPU
  if (reduces_everywhere(call))
    return "every rank takes the values, and reduces them itself (full verification)";
  return composes(call) ? composition_of(call) : plane.explain(call);
}

// Runs as several calls of planes: the collective always does, or this call does here.
bool Communicator::composes(const Call& call) const {
  return is_composed(call.collective) ||
         (needs_order(call) && job_.size > 1 && !plane_->keeps_order(call));
}

// The number of the text about such a call in the trace, 0: none. A new kind of call is explained
// by `plane`; null: not yet.
std::uint16_t Communicator::explained(const Call& call, const Plane* plane) {
  constexpr std::size_t kMostKinds = 1000;
  if (!job_.explains && !flight_->traces()) return 0;
  const Explained kind{call.collective,
                       call.dtype,
                       call.task.device >= 0,
                       call.splits != nullptr,
                       needs_order(call),
                       sums_may_overflow(call),
                       call.shards != nullptr ? call.shards->shards : 0,
                       call.count,
                       call.counts != nullptr ? longest_part(shape_of(call, job_.size)) : 0};
  const auto known = explained_.find(kind);
  if (known != explained_.end()) return known->second;
  if (plane == nullptr || explained_.size() >= kMostKinds) return 0;
  const std::string how =
      // How the parts go depends on the longest one, which the ranks find out in the call.
      kind.with_splits ? "parts of different lengths, after an exchange of the lengths"
                       : way_of(call, *plane);
  if (job_.explains && job_.rank == 0) {
    log_info("{} of {} {}{}: {}", collective_name(call.collective), call.count,
             dtype_name(call.dtype), kind.on_device ? " on a GPU" : "", how);
  }
  return explained_[kind] = flight_->traces() ? flight_->explain(how) : 0;
}

// A call, or a step of one, on the host's plane, which has its own count.
Result<void> Communicator::run_step(const Call& call) {
  Call step = call;
  step.seq = ++plane_seq_;
  step.step_of = &users_call(call);
  return plane_->run(step);
}

// A call with this rank's own values.
Result<void> Communicator::run_on_host(const Call& call) {
  if (call.op == kPremulSum && call.program_op != nullptr) return run_multiplied(call);
  if (reduces_everywhere(call)) return run_everywhere(call);
  if (composes(call)) return run_composed(call);
  return job_.size == 1 ? run_alone(call) : run_step(call);
}

// Before an all_to_all of parts that differ: each rank learns where its part begins in each other
// rank's `in`, that both ends of each part agree on its length, how long the longest one is, and
// that the ranks agree on whether their memory is on a GPU.
Result<void> Communicator::tell_splits(const Call& call, Splits& splits) {
  struct Told {
    std::uint64_t first = 0, count = 0, longest = 0, on_device = 0;
  };
  const bool on_device = call.task.device >= 0;
  std::uint64_t longest = 0;
  for (const Part& part : splits.given) longest = std::max<std::uint64_t>(longest, part.count);
  const auto n = static_cast<std::size_t>(job_.size);
  std::vector<Told> told(n), heard(n);
  for (std::size_t r = 0; r < n; ++r) {
    told[r] = {splits.given[r].first, splits.given[r].count, longest, on_device};
  }
  Call exchange{.collective = Collective::all_to_all,
                .in = told.data(),
                .out = heard.data(),
                .count = sizeof(Told) / sizeof(std::uint64_t),
                .dtype = DL_UINT64};
  make_step(exchange, call, Within::all_to_all_v);
  if (auto done = run_step(exchange); !done) return done;
  splits.from.assign(n, 0);
  for (std::size_t r = 0; r < n; ++r) {
    if (heard[r].count != splits.taken[r].count) {
      return Error{
          .code = Errc::mismatch,
          .what = fmt::format("all_to_all_v #{}: rank {} gives {} elements to rank {}, "
                              "which takes {} from it",
                              call.seq, r, heard[r].count, job_.rank, splits.taken[r].count),
          .rank = static_cast<int>(r)};
    }
    splits.from[r] = static_cast<std::size_t>(heard[r].first);
    splits.longest = std::max(splits.longest, static_cast<std::size_t>(heard[r].longest));
  }
  for (std::size_t r = 0; splits.longest > 0 && r < n; ++r) {
    if ((heard[r].on_device != 0) == on_device) continue;
    const int other = static_cast<int>(r);
    return Error{
        .code = Errc::mismatch,
        .what = fmt::format("all_to_all_v #{}: rank {} gave memory on a GPU, and rank {} "
                            "did not: without elements a rank gives a pointer, too",
                            call.seq, on_device ? job_.rank : other, on_device ? other : job_.rank),
        .rank = other};
  }
  return {};
}

Result<void> Communicator::run_on_plane(const Call& call,
                                        const std::function<void(bool failed)>& ended) {
  if (call.splits != nullptr) return run_with_splits(call, ended);
  return call.task.device >= 0 ? run_on_device(call, ended) : run_on_host(call);
}

Result<void> Communicator::run_with_splits(Call call,
                                           const std::function<void(bool failed)>& ended) {
  Splits splits = *call.splits;
  if (auto told = tell_splits(call, splits); !told) return told;
  if (splits.longest == 0) {  // nothing moves, on any rank
    if (call.task.ordered) ended(false);
    return {};
  }
  call.splits = &splits;
  return call.task.device >= 0 ? run_on_device(call, ended) : run_on_host(call);
}

// Runs on the thread that carries out the call.
Result<void> Communicator::run(Call call, SpanKind kind) {
  const bool on_device = call.task.device >= 0;
  if (job_.size == 1) {
    return finish(without_exceptions_in(
        call, [&] { return on_device ? run_on_device(call, [](bool) {}) : run_on_host(call); }));
  }
  const TimePoint now = steady_now();
  call.begun = now;
  call.deadline = deadline_after(now, call.limit);
  call.past = past_;
  const CallSignature signature = signature_of(call, job_.size);
  if (traits_of(call.collective).rooted) past_ = rooted_past(past_, signature);
  links_->enter(call.seq, signature);
  const std::uint16_t how = explained(call, on_device ? nullptr : plane_.get());
  if (call.task.ordered) kind = SpanKind::background;
  const auto ticket = flight_->begin(now, call, group_hash_, world_peer(call.root), kind);
  const auto ended = [this, ticket, kind, how, seq = call.seq](bool failed) {
    flight_->end(ticket, failed, kind, how);
    failpoint("communicator.called");
    if (!failed) links_->complete(seq);
  };
  auto done = without_exceptions_in(call, [&] { return run_on_plane(call, ended); });
  if (done && verifier_ && !on_device)
    done = without_exceptions_in(call, [&] { return verify(call); });
  if (on_device) explained(call, device_.get());
  // In shared memory no rank sees whether a rank that has arrived stands still, or waits itself.
  if (!done && done.error().code == Errc::timeout && regions_ && !abort_.raised()) {
    if (auto named = absent(call, waited_in(call, steady_now()))) done = *named;
  }
  if (!done || !call.task.ordered) ended(!done);
  return finish(std::move(done));
}

// The error that names the missing ranks of a call whose time is up; none: all are in it.
std::optional<Error> Communicator::absent(const Call& call, Duration waited) const {
  const RollCall roll = links_->call_roll(call.seq);
  if (abort_.raised()) return abort_.error();
  return timed_out_by_roll(roll, call, waited, job_.size);
}

void Communicator::serve_collectives(OperationQueue& queue) {
  while (auto operation = queue.take())
    operation->finish(run(operation->call, SpanKind::background));
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
  find_program_op(call);
  if (auto ok = check(call); !ok) return ok.error();
  if (auto ok = attach(call, false); !ok) return ok.error();
  call.seq = ++seq_;
  call.limit = op_timeout_;
  auto operation = std::make_shared<Operation>(completions_);
  operation->keep(call, job_.size);
  auto started = pushed(collectives_, std::move(operation));
  if (!started) --seq_;  // the call did not happen: the ranks' counts stay equal
  return started;
}

Result<void> Communicator::transfer(Message& message) {
  if (!messages_.busy()) {
    if (auto ok = check(message); !ok) return ok;
    const auto staged = stage(message);
    if (!staged) return staged.error();
    if (auto ok = open_messenger(); !ok) return finish(message, std::move(ok));
    auto done = run(message, SpanKind::call);
    return done ? unstage(*staged) : done;
  }
  auto started = start(message);
  if (!started) return started.error();
  auto done = wait(**started);
  message.source = (*started)->message.source;
  return done;
}

Result<void> Communicator::run(Message& message, SpanKind kind) {
  const TimePoint now = steady_now();
  message.deadline = deadline_after(now, op_timeout());
  const auto ticket = flight_->begin(now, message, world_peer(message.peer), kind);
  auto done = without_exceptions([&] { return messenger_->transfer(message); });
  flight_->end(ticket, !done, kind);
  return finish(message, std::move(done));
}

// An awaited rank, at a message or a bootstrap, may itself wait for a rank that stands still.
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
  message.deadline = deadline_after(steady_now(), op_timeout());
  if (auto ok = open_messenger(); !ok) return finish(message, std::move(ok)).error();
  auto operation = std::make_shared<Operation>(completions_);
  operation->is_message = true;
  operation->staged = std::move(*staged);
  operation->message = message;
  return pushed(messages_, std::move(operation));
}

Result<void> Communicator::wait(const Operation& operation) {
  if (!operation.done()) {
    const FlightRecorder::Blocked blocked(flight_);
    Completions::wait([&] { return operation.done(); });
  }
  if (!operation.is_message) return operation.outcome();
  auto done = finish(operation.message, operation.outcome());
  return done ? unstage(operation.staged) : done;
}

Result<void> Communicator::finish(const Message& message, Result<void> done) {
  if (!done && done.error().code == Errc::peer_lost && message.peer >= 0 &&
      links_->has_left(message.peer)) {
    Error error = done.error();
    error.what += ": it has left the job";
    done = std::move(error);
  } else if (!done) {
    done = blame_silent(done.error());
  }
  return finish(std::move(done));
}

// -- Memory that the others read in place

// Tells the others whether this rank has its memory, and learns how much each of them has.
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
                               .dtype = DL_UINT8,
                               .within = Within::alloc});
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
  // A size beyond any memory counts as a lack of it, which all ranks must learn.
  const std::size_t wanted = std::clamp<std::size_t>(bytes, 1, PTRDIFF_MAX - kPage);
  const std::size_t whole = (wanted + kPage - 1) / kPage * kPage;
  if (!regions_) {
    auto own = ordinary_memory(whole);
    const auto all = all_have(whole, own ? Result<void>() : own.error());
    if (!all) return all.error();
    return own;
  }
  auto own = make_shm_segment("dlring-memory", whole);
  const auto sizes = all_have(whole, own ? Result<void>() : own.error());
  if (!sizes) return sizes.error();
  const auto memory = own->writable;
  auto region =
      exchange().exchange(std::move(*own), *sizes, deadline_after(steady_now(), op_timeout()));
  if (!region && region.error().code != Errc::io) return finish(region.error()).error();
  const auto mapped = all_have(whole, region ? Result<void>() : region.error());
  if (!mapped) return mapped.error();
  regions_->add(std::move(*region));
  return memory;
}

// It passes descriptors on the links.
ShmExchange& Communicator::exchange() {
  if (!exchange_) {
    exchange_ = std::make_unique<ShmExchange>(
        job_.rank,
        [this](std::size_t r, int descriptor, TimePoint) -> Result<void> {
          links_->pass(static_cast<int>(r), Passed::region, descriptor);
          return {};
        },
        [this](std::size_t r, TimePoint deadline) {
          return links_->take(static_cast<int>(r), Passed::region, deadline);
        },
        abort_);
  }
  return *exchange_;
}

void Communicator::release(const void* memory) {
  if (regions_) regions_->remove(memory);
}

// A group has its own rank numbers, which readers of the error may not know.
Error Communicator::named_in_job(Error error) const {
  if (job_.group.empty() || error.rank < 0 || who_.empty()) return error;
  const std::string& name = who_[static_cast<std::size_t>(error.rank)];
  if (error.what.find(name) != std::string::npos) return error;
  error.what += fmt::format("; rank {} of this group is {}", error.rank, name);
  return error;
}

// The first failure ends the communicator on all ranks: otherwise peers in the same operation would
// wait until their own deadline.
Result<void> Communicator::finish(Result<void> done) {
  if (done) return done;
  const Error first = abort_.raised() ? abort_.error() : named_in_job(done.error());
  failpoint("communicator.fails");
  if (links_) links_->abort(first);  // tells the others, once
  abort_.raise(first);
  const Error error = abort_.error();
  if (error.code == Errc::peer_lost) note_peer_lost(error);
  if (error.code == Errc::corrupt) note_corrupt(error);
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

// all_reduce_some: an all_reduce of the ranks that come in time. ring/call/some_quorum.h decides
// who that is, and every rank gets the decision on its links. Each rank that is in owns a slice of
// the elements: it gets the others' values of it, reduces them in the order of ranks, and sends the
// result to all ranks. These are messages with tags of the library. To a late rank the result is on
// its way in the background, and its copy is freed once the kernel has it; the late rank takes it
// when it makes the call.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/rank_set.h"
#include "ring/call/overlap.h"
#include "ring/call/slices.h"
#include "ring/communicator.h"
#include "ring/kernels/reduce.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {

namespace {

bool all_done(const std::vector<std::shared_ptr<Operation>>& operations) {
  return std::all_of(operations.begin(), operations.end(),
                     [](const auto& one) { return one->done(); });
}

// Sums of 8 bits leave their range soon, and an average of integers needs a sum that has not left
// it. A sum that is kept has the type of the call.
bool can_keep(const Call& call) {
  return dtype_bytes(call.dtype) > 1 && (call.op == DL_SUM || dtype_is_float(call.dtype));
}

}  // namespace

// Messages of one step of a call, which end together. Their buffers may go once end() has returned.
class SomeMessages {
 public:
  SomeMessages(Communicator& comm, const Call& call) : comm_(comm), call_(call) {
    const auto peers = static_cast<std::size_t>(comm.job_.size);
    posted_.reserve(2 * peers);  // no operation may get lost
    comm.owed_.reserve(comm.owed_.size() + peers);
  }
  // After an exception the messages may not use their buffers any longer.
  ~SomeMessages() {
    if (posted_.empty()) return;
    try {
      if (!failed_) failed_ = Error{.code = Errc::io, .what = "all_reduce_some: out of memory"};
      (void)end();
    } catch (const std::exception&) {
      await_all();
    }
  }
  SomeMessages(const SomeMessages&) = delete;
  SomeMessages& operator=(const SomeMessages&) = delete;

  void send(int peer, const void* from, std::size_t count, int tag) {
    post({.send = from, .is_send = true, .count = count, .peer = peer, .tag = tag});
  }
  void receive(int peer, void* to, std::size_t count, int tag) {
    post({.recv = to, .count = count, .peer = peer, .tag = tag});
  }
  // A send that goes on after end(), without a time limit, and keeps its values until then.
  void owe(int peer, const std::shared_ptr<std::vector<std::byte>>& values, std::size_t count) {
    Message message{.send = values->data(),
                    .is_send = true,
                    .count = count,
                    .peer = peer,
                    .tag = kSomeResultTag};
    if (auto operation = start(message, kNever, values)) comm_.owed_.push_back(operation);
  }

  // Waits until all are done, also after a failure, which ends all.
  Result<void> end() {
    if (failed_) (void)comm_.finish(*failed_);
    await_all();
    for (const auto& one : posted_) {
      if (!one->outcome() && !failed_) failed_ = comm_.blame_silent(one->outcome().error());
    }
    posted_.clear();
    return failed_ ? Result<void>(*failed_) : Result<void>();
  }

 private:
  void await_all() const {
    Completions::wait([&] { return all_done(posted_); });
  }
  void post(const Message& message) {
    if (auto operation = start(message, call_.deadline, nullptr)) posted_.push_back(operation);
  }
  // Null, and failed_, if it could not start. A message without elements needs no start.
  std::shared_ptr<Operation> start(Message message, TimePoint deadline,
                                   std::shared_ptr<void> keeps) {
    if (failed_ || message.count == 0) return nullptr;
    message.dtype = call_.dtype;
    message.deadline = deadline;
    auto operation = std::make_shared<Operation>(comm_.completions_);
    operation->is_message = true;
    operation->message = message;
    operation->keeps = std::move(keeps);
    auto ready = comm_.open_messenger();
    if (!ready) {
      operation->finish(ready);
    } else if (auto pushed = Communicator::pushed(comm_.messages_, operation); !pushed) {
      ready = pushed.error();
    }
    if (ready) return operation;
    failed_ = ready.error();
    return nullptr;
  }

  Communicator& comm_;
  const Call& call_;
  std::vector<std::shared_ptr<Operation>> posted_;
  std::optional<Error> failed_;
};

Result<void> Communicator::check_some(const Call& call) {
  const auto wrong = [](std::string_view what) {
    return usage_error(fmt::format("all_reduce_some: {}", what));
  };
  if (call.op != DL_SUM && call.op != DL_AVG) {
    return Error{.code = Errc::unsupported,
                 .what = "all_reduce_some: only sums and averages can lack contributions"};
  }
  if (job_.size > kMostSomeRanks) {
    return Error{.code = Errc::unsupported,
                 .what = fmt::format("all_reduce_some: more than {} ranks", kMostSomeRanks)};
  }
  const SomeTerms& some = *call.some;
  if (some.need < 1 || some.need > job_.size) return wrong("need is not 1 to the number of ranks");
  if (some.max_behind < 0) return wrong("max_behind is negative");
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  if (bytes > 0 && call.out == nullptr) return wrong("out is null");
  const MemoryRange in{static_cast<const char*>(call.in), call.in == nullptr ? 0 : bytes};
  const MemoryRange out{static_cast<const char*>(call.out), bytes};
  if (call.in != call.out && in.overlaps(out)) {
    return wrong("in and out overlap without being in place");
  }
  const auto kept = kept_.find(some.slot);
  if ((some.carries || kept != kept_.end()) && !can_keep(call)) {
    return Error{
        .code = Errc::unsupported,
        .what = fmt::format("all_reduce_some: {} of {} cannot be carried, because their "
                            "sums may leave the type's range: use DL_LATE_DROP, or "
                            "another type",
                            call.op == DL_AVG ? "averages" : "sums", dtype_name(call.dtype))};
  }
  if (kept != kept_.end() &&
      (kept->second.count != call.count || kept->second.dtype != call.dtype)) {
    return wrong(fmt::format("slot {} carries {} {}: use another slot for another buffer",
                             some.slot, kept->second.count, dtype_name(kept->second.dtype)));
  }
  if (kept != kept_.end() && kept->second.contributions >= most_contributions(job_.size)) {
    return wrong(fmt::format("slot {} carries {} contributions, and no more fit", some.slot,
                             kept->second.contributions));
  }
  return {};
}

int Communicator::some_behind() const {
  if (forked_ || !links_) return 0;
  const std::uint64_t decided = links_->decided();
  const std::uint64_t behind = decided > some_made_ ? decided - some_made_ : 0;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  return static_cast<int>(std::min(behind, kMost));
}

// How many contributions of each rank are in.
Result<SomeGiven> Communicator::some_given(const Call& call, std::uint32_t contributions) {
  if (job_.size == 1) return SomeGiven{contributions};
  const SomeTerms& some = *call.some;
  SomeArrival arrival{.number = ++some_made_,
                      .contributions = contributions,
                      .need = static_cast<std::uint32_t>(some.need),
                      .max_behind = static_cast<std::uint32_t>(some.max_behind),
                      .waited = some.wait <= Duration::zero(),
                      .call = signature_of(call, job_.size)};
  links_->some_arrived(arrival);
  const TimePoint patience = arrival.waited ? call.deadline : deadline_after(call.begun, some.wait);
  auto given = links_->await_decision(arrival.number, std::min(patience, call.deadline));
  if (given && !*given && patience < call.deadline) {
    arrival.waited = true;
    links_->some_arrived(arrival);
    given = links_->await_decision(arrival.number, call.deadline);
  }
  if (!given) return given.error();
  if (*given) return std::move(**given);
  const Duration waited = waited_in(call, steady_now());
  // With shared memory run() calls the roll.
  if (!regions_) {
    if (auto named = absent(call, waited)) return *named;
  }
  return op_timeout_error(call, waited, "0, which decides", "all");
}

Result<void> Communicator::run_some(const Call& call) {
  const SomeTerms& some = *call.some;
  const bool gives = call.in != nullptr;
  const std::size_t bytes = call.count * dtype_bytes(call.dtype);
  std::erase_if(owed_, [](const auto& operation) { return operation->done(); });
  const auto kept = kept_.find(some.slot);
  const std::uint32_t before = kept == kept_.end() ? 0 : kept->second.contributions;
  const std::uint32_t contributions = before + (gives ? 1 : 0);
  const auto* values = static_cast<const std::byte*>(call.in);
  // Their sum has a place of its own: if this rank is late and drops its values, others stay kept.
  std::vector<std::byte> sum;
  if (before > 0) {
    sum = kept->second.values;
    const std::array<const void*, 2> both{sum.data(), call.in};
    if (gives) reduce(both, sum.data(), call.count, call.dtype, DL_SUM, 0);
    values = sum.data();
  }
  const auto given = some_given(call, contributions);
  if (!given) return given.error();
  const bool in = (*given)[static_cast<std::size_t>(job_.rank)] > 0;
  const bool carries = !in && gives && some.carries;
  if (carries) {
    if (before == 0) sum.assign(values, values + bytes);
    kept_[some.slot] = {std::move(sum), call.count, call.dtype, contributions};
  }
  const dl_fate fate = in                       ? DL_FATE_IN
                       : gives && !some.carries ? DL_FATE_DROPPED
                       : carries || before > 0  ? DL_FATE_CARRIED
                                                : DL_FATE_NONE;
  if (auto done = reduce_some(call, *given, values); !done) return done;
  if (in && before > 0) kept_.erase(some.slot);
  if (some.fate != nullptr) *some.fate = fate;
  if (some.given != nullptr) std::copy(given->begin(), given->end(), some.given);
  return {};
}

// values: those of this rank, if it is in.
Result<void> Communicator::reduce_some(const Call& call, const SomeGiven& given,
                                       const std::byte* values) {
  const std::size_t element = dtype_bytes(call.dtype);
  auto* const out = static_cast<std::byte*>(call.out);
  std::vector<int> members;
  std::uint32_t total = 0;
  for (int r = 0; r < job_.size; ++r) {
    total += given[static_cast<std::size_t>(r)];
    if (given[static_cast<std::size_t>(r)] > 0) members.push_back(r);
  }
  if (call.count == 0) return {};
  if (members.empty()) {
    std::memset(out, 0, call.count * element);
    return {};
  }
  const auto slices = slices_of(call.count, static_cast<int>(members.size()));
  SomeMessages messages(*this, call);
  const auto for_each_other = [&](auto act) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] != job_.rank) act(i, members[i], slices[i]);
    }
  };
  if (given[static_cast<std::size_t>(job_.rank)] > 0) {
    const auto own = static_cast<std::size_t>(std::find(members.begin(), members.end(), job_.rank) -
                                              members.begin());
    const std::size_t first = slices[own].first, count = slices[own].count;
    std::byte* const parts = room_in(step_memory_, members.size() * count * element);
    std::vector<const void*> places(members.size(), values + first * element);
    for_each_other([&](std::size_t i, int member, const Part& theirs) {
      std::byte* const part = parts + i * count * element;
      places[i] = part;
      messages.receive(member, part, count, kSomePartTag);
      messages.send(member, values + theirs.first * element, theirs.count, kSomePartTag);
    });
    if (auto moved = messages.end(); !moved) return moved;
    std::byte* const result = out + first * element;
    if (count > 0) {
      reduce(places, result, count, call.dtype, call.op, static_cast<int>(total));
    }
    give_some(messages, given, {result, count * element}, count);
  }
  for_each_other([&](std::size_t, int member, const Part& theirs) {
    messages.receive(member, out + theirs.first * element, theirs.count, kSomeResultTag);
  });
  return messages.end();
}

// A rank that is late, or gives nothing, may take its result much later.
void Communicator::give_some(SomeMessages& messages, const SomeGiven& given,
                             std::span<const std::byte> result, std::size_t count) {
  std::shared_ptr<std::vector<std::byte>> copy;
  if (std::find(given.begin(), given.end(), 0U) != given.end()) {
    copy = std::make_shared<std::vector<std::byte>>(result.begin(), result.end());
  }
  for (int r = 0; r < job_.size; ++r) {
    if (given[static_cast<std::size_t>(r)] == 0) {
      messages.owe(r, copy, count);
    } else if (r != job_.rank) {
      messages.send(r, result.data(), count, kSomeResultTag);
    }
  }
}

void Communicator::settle() {
  constexpr Duration kQuiet = std::chrono::seconds(5), kMost = std::chrono::seconds(1800);
  if (forked_ || all_done(owed_)) return owed_.clear();
  const auto over = [this] { return abort_.raised() || all_done(owed_); };
  const Duration limit = op_timeout() < Duration::zero() ? kMost : op_timeout();
  const TimePoint now = steady_now(), deadline = deadline_after(now, limit);
  Completions::wait_until(now + std::min(kQuiet, limit / 2), over);
  if (!over() && steady_now() < deadline) {
    RankSet late;
    for (const auto& one : owed_) {
      if (!one->done()) late.insert(one->message.peer);
    }
    log_warn(
        "all_reduce_some: this rank, {}, leaves once {} {} has taken its results, or in {:.1f} s",
        job_.rank, late.size() == 1 ? "rank" : "each of ranks", format_rank_set(late),
        to_seconds(deadline - steady_now()));
    Completions::wait_until(deadline, over);
  }
  owed_.clear();
}

}  // namespace dlaunch

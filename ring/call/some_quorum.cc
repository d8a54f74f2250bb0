#include "ring/call/some_quorum.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/codec.h"

namespace dlaunch {

std::string encode(const SomeArrival& arrival) {
  Writer out;
  out.put(arrival.contributions);
  out.put(arrival.need);
  out.put(arrival.max_behind);
  out.put(static_cast<std::uint8_t>(arrival.waited));
  out.put(arrival.call.count);
  out.put(arrival.call.packed);
  out.put(arrival.call.seq);
  return out.take();
}

std::optional<SomeArrival> arrival_in(std::string_view text, std::uint64_t number) {
  Reader in(text);
  SomeArrival arrival{.number = number};
  arrival.contributions = in.get<std::uint32_t>();
  arrival.need = in.get<std::uint32_t>();
  arrival.max_behind = in.get<std::uint32_t>();
  const auto waited = in.get<std::uint8_t>();
  arrival.waited = waited != 0;
  arrival.call.count = in.get<std::uint64_t>();
  arrival.call.packed = in.get<std::uint32_t>();
  arrival.call.seq = in.get<std::uint32_t>();
  if (!in.done() || waited > 1) return std::nullopt;
  return arrival;
}

std::string encode(const SomeGiven& given) {
  Writer out;
  for (const std::uint32_t of_rank : given) out.put(of_rank);
  return out.take();
}

std::optional<SomeGiven> given_in(std::string_view text, int ranks) {
  Reader in(text);
  SomeGiven given(static_cast<std::size_t>(ranks));
  std::uint64_t total = 0;
  for (std::uint32_t& of_rank : given) total += of_rank = in.get<std::uint32_t>();
  if (!in.done() || total > std::numeric_limits<int>::max()) return std::nullopt;
  return given;
}

Result<std::optional<SomeDecision>> SomeQuorum::arrive(int rank, const SomeArrival& arrival) {
  std::uint64_t& reached = reached_[static_cast<std::size_t>(rank)];
  if (!sound(arrival)) {
    return Error{.code = Errc::protocol,
                 .what = fmt::format("rank {} came to all_reduce_some {} with need {}, max_behind "
                                     "{} and {} contributions, which no program can give",
                                     rank, arrival.number, arrival.need, arrival.max_behind,
                                     arrival.contributions),
                 .rank = rank};
  }
  const bool again = arrival.number == reached && arrival.waited && reached > 0;
  if (!again && (arrival.number != reached + 1 || arrival.number > open_)) {
    return Error{.code = Errc::protocol,
                 .what = fmt::format("rank {} came to all_reduce_some {} after {}, while {} was "
                                     "not decided",
                                     rank, arrival.number, reached, open_),
                 .rank = rank};
  }
  if (!again) {
    if (auto same = compare(rank, arrival); !same) return same.error();
    reached = arrival.number;
  }
  if (arrival.number == open_) {
    if (!again) given_[static_cast<std::size_t>(rank)] = arrival.contributions;
    need_ = arrival.need;
    max_behind_ = arrival.max_behind;
    waited_ = waited_ || arrival.waited;
  }
  return decide();
}

// What check_some() of the arriving rank lets through.
bool SomeQuorum::sound(const SomeArrival& arrival) const {
  return arrival.need >= 1 && arrival.need <= reached_.size() &&
         arrival.max_behind <= std::numeric_limits<int>::max() &&
         arrival.contributions <= most_contributions(static_cast<int>(reached_.size()));
}

// The first rank of a call says what the others must call there, too.
Result<void> SomeQuorum::compare(int rank, const SomeArrival& arrival) {
  if (arrival.number == first_called_ + called_.size()) called_.push_back({rank, arrival.call});
  const Called& first = called_[static_cast<std::size_t>(arrival.number - first_called_)];
  if (first.call == arrival.call) return {};
  return mismatch_error(first.rank, first.call, rank, arrival.call);
}

std::optional<SomeDecision> SomeQuorum::decide() {
  const auto slowest = *std::min_element(reached_.begin(), reached_.end());
  for (; first_called_ < slowest; ++first_called_) called_.pop_front();
  const auto givers = std::count_if(given_.begin(), given_.end(), [](auto n) { return n > 0; });
  const bool enough =
      waited_ && static_cast<std::uint64_t>(givers) >= need_ && slowest + max_behind_ >= open_;
  if (!enough && slowest < open_) return std::nullopt;
  waited_ = false;
  return SomeDecision{open_++, std::exchange(given_, SomeGiven(given_.size()))};
}

}  // namespace dlaunch

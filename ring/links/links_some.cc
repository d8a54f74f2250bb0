// Links: who is in an all_reduce_some. Rank 0 decides, on whatever thread brings an arrival, so
// also while its caller computes.
#include <utility>

#include "base/failpoint.h"
#include "ring/links/links.h"

namespace dlaunch {
namespace {

constexpr int kDecides = 0;

}  // namespace

void Links::some_arrived(const SomeArrival& arrival) {
  if (rank_ == kDecides) return take_arrival(rank_, arrival);
  LinkFrame arrived = frame(LinkFrame::Type::arrived, arrival.number, rank_);
  const std::string text = encode(arrival);
  arrived.text = text;
  tell(kDecides, arrived);
}

void Links::on_arrived(int peer, const LinkFrame& frame) {
  const auto arrival = arrival_in(frame.text, frame.seq);
  if (!arrival || rank_ != kDecides) return nonsense_of(peer);
  take_arrival(peer, *arrival);
}

void Links::take_arrival(int rank, const SomeArrival& arrival) {
  std::unique_lock lock(quorum_mutex_);
  if (!quorum_) quorum_ = std::make_unique<SomeQuorum>(static_cast<int>(peers_.size()));
  auto decision = quorum_->arrive(rank, arrival);
  if (!decision) {
    lock.unlock();
    return abort(naming_ ? naming_(decision.error()) : decision.error());
  }
  if (!*decision) return;
  failpoint("links.decides");
  LinkFrame decided = frame(LinkFrame::Type::decided, (*decision)->number, rank_);
  const std::string text = encode((*decision)->given);
  decided.text = text;
  tell_all(decided);
  (void)keep_decision(std::move(**decision));
}

void Links::on_decided(int peer, const LinkFrame& frame) {
  auto given = given_in(frame.text, static_cast<int>(peers_.size()));
  if (!given || peer != kDecides) return nonsense_of(peer);
  if (!keep_decision({frame.seq, std::move(*given)})) nonsense_of(peer);
}

// False: it is not the one after the last.
bool Links::keep_decision(SomeDecision decision) {
  {
    const std::lock_guard lock(mail_mutex_);
    if (decision.number != decided_ + 1) return false;
    decisions_[decision.number] = std::move(decision.given);
    decided_ = decision.number;
  }
  mail_.notify_all();
  return true;
}

Result<std::optional<SomeGiven>> Links::await_decision(std::uint64_t number, TimePoint until) {
  std::unique_lock lock(mail_mutex_);
  const auto there = await_mail(lock, until, nullptr, [&] { return decisions_.contains(number); });
  if (!there) return there.error();
  if (!*there) return std::optional<SomeGiven>();
  return std::optional(std::move(decisions_.extract(number).mapped()));
}

}  // namespace dlaunch

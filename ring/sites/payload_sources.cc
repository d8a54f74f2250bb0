#include "ring/sites/payload_sources.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

// Asks that wait for bytes; the oldest goes first.
constexpr std::size_t kMostWaitingAsks = 4096;
// Blocks that come further apart are no flow, and a shorter flow says little about the line.
constexpr Duration kFlowPause = std::chrono::milliseconds(500);
constexpr Duration kShortFlow = std::chrono::milliseconds(20);

}  // namespace

void PayloadSources::peer_down(int site) {
  connected_.erase(site);
  silent_.erase(site);
  held_by_.erase(site);
  sees_.erase(site);
  flows_.erase(site);
  std::erase_if(waiting_, [=](const PayloadAsk& ask) { return ask.site == site; });
  for (auto& [id, payload] : payloads_) {
    payload.bad.erase(site);
    if (payload.source != site) continue;
    payload.source = -1;
    payload.asked = payload.reached;
  }
}

void PayloadSources::set_silent(int site, bool silent) {
  if (silent) {
    silent_.insert(site);
  } else {
    silent_.erase(site);
  }
}

void PayloadSources::peer_has(int site, const std::vector<Contribution>& whole,
                              std::set<int> sees) {
  held_by_[site] = {whole.begin(), whole.end()};
  sees_[site] = std::move(sees);
}

void PayloadSources::have(const Contribution& payload) {
  Payload& it = payloads_[payload];
  it.reached = it.asked = payload.bytes;
  it.whole = true;
  it.source = -1;
}

void PayloadSources::want(TimePoint now, const Contribution& payload) {
  if (payloads_.contains(payload)) return;
  payloads_[payload].moved = now;
}

void PayloadSources::drop(const Contribution& payload) {
  payloads_.erase(payload);
  std::erase_if(waiting_, [&](const PayloadAsk& ask) { return ask.payload == payload; });
}

void PayloadSources::corrupt(TimePoint now, const Contribution& payload) {
  const auto found = payloads_.find(payload);
  if (found == payloads_.end()) return;
  Payload& it = found->second;
  if (it.source >= 0) it.bad.insert(it.source);
  it.reached = it.asked = 0;
  it.whole = false;
  it.source = -1;
  it.moved = now;
}

bool PayloadSources::expects(const Contribution& payload, std::uint64_t offset,
                             std::uint64_t count) const {
  const auto found = payloads_.find(payload);
  return found != payloads_.end() && !found->second.whole && offset == found->second.reached &&
         count > 0 && count <= payload.bytes - offset;
}

bool PayloadSources::arrived(TimePoint now, int from, const Contribution& payload,
                             std::uint64_t count) {
  Payload& it = payloads_.at(payload);
  it.reached += count;
  it.asked = std::max(it.asked, it.reached);
  it.moved = now;
  measure(now, from, count);
  return it.reached == payload.bytes;
}

void PayloadSources::asked(const PayloadAsk& ask) {
  if (std::find(waiting_.begin(), waiting_.end(), ask) != waiting_.end()) return;
  if (waiting_.size() == kMostWaitingAsks) waiting_.erase(waiting_.begin());
  waiting_.push_back(ask);
}

void PayloadSources::forget_asks(const MergeId& up_to) {
  std::erase_if(waiting_, [&](const PayloadAsk& ask) {
    return ask.payload.id <= up_to && !knows(ask.payload);
  });
}

// The best one first. From here back along the ring to the origin, then all that have it.
std::vector<int> PayloadSources::candidates(const Contribution& payload) const {
  const int origin = payload.member.site;
  std::vector<int> all;
  const auto has_it = [&](int site) {
    const auto held = held_by_.find(site);
    return held != held_by_.end() && held->second.contains(payload);
  };
  const auto sees_origin = [&](int site) {
    const auto seen = sees_.find(site);
    return seen != sees_.end() && seen->second.contains(origin);
  };
  const auto here = std::find(order_.begin(), order_.end(), me_);
  if (here != order_.end() && std::find(order_.begin(), order_.end(), origin) != order_.end()) {
    const std::size_t size = order_.size();
    auto at = static_cast<std::size_t>(here - order_.begin());
    for (at = (at + size - 1) % size; order_[at] != origin; at = (at + size - 1) % size) {
      const int site = order_[at];
      if (connected_.contains(site) && (has_it(site) || sees_origin(site))) all.push_back(site);
    }
  }
  if (has_it(origin)) all.push_back(origin);
  for (const auto& [site, held] : held_by_) {
    if (has_it(site) && std::find(all.begin(), all.end(), site) == all.end()) all.push_back(site);
  }
  return all;
}

// One that is not silent and has not failed.
std::optional<int> PayloadSources::best_source(const Contribution& payload,
                                               const Payload& it) const {
  for (const int site : candidates(payload)) {
    if (!it.bad.contains(site) && !silent_.contains(site)) return site;
  }
  return std::nullopt;
}

void PayloadSources::choose(TimePoint now, const Contribution& payload, Payload& it) {
  auto chosen = best_source(payload, it);
  if (!chosen) {
    it.bad.clear();
    chosen = best_source(payload, it);
  }
  if (!chosen) {
    const std::vector<int> silent = candidates(payload);
    if (silent.empty()) return;
    chosen = silent.front();
  }
  it.source = *chosen;
  it.asked = it.reached;
  it.moved = now;
}

// While other payloads come from the source, this one may wait behind them.
TimePoint PayloadSources::stalls_at(const Payload& payload) const {
  const auto flow = flows_.find(payload.source);
  const TimePoint last = flow == flows_.end() ? payload.moved : flow->second.last;
  return std::max(payload.moved, last) + limits_.stall;
}

std::vector<PayloadAsk> PayloadSources::take_asks(TimePoint now) {
  std::vector<PayloadAsk> asks;
  const std::uint64_t window = std::uint64_t{limits_.block} * static_cast<unsigned>(limits_.window);
  for (auto& [id, payload] : payloads_) {
    if (payload.reached == id.bytes) continue;
    if (payload.source >= 0 && now >= stalls_at(payload)) {
      payload.bad.insert(payload.source);
      payload.source = -1;
    }
    if (silent_.contains(payload.source) && best_source(id, payload)) payload.source = -1;
    if (payload.source < 0) choose(now, id, payload);
    if (payload.source < 0) continue;
    while (payload.asked < id.bytes && payload.asked < payload.reached + window) {
      const auto count = std::min<std::uint64_t>(limits_.block, id.bytes - payload.asked);
      asks.push_back({payload.source, id, payload.asked, static_cast<std::uint32_t>(count)});
      payload.asked += count;
    }
  }
  return asks;
}

std::vector<PayloadAsk> PayloadSources::take_answers() {
  std::vector<PayloadAsk> answers;
  std::erase_if(waiting_, [&](const PayloadAsk& ask) {
    const auto found = payloads_.find(ask.payload);
    if (found == payloads_.end() || found->second.reached < ask.offset + ask.count) return false;
    answers.push_back(ask);
    return true;
  });
  return answers;
}

TimePoint PayloadSources::deadline() const {
  TimePoint first = kNever;
  for (const auto& [id, payload] : payloads_) {
    if (payload.source < 0 || payload.reached == id.bytes) continue;
    first = std::min(first, stalls_at(payload));
  }
  return first;
}

bool PayloadSources::has(const Contribution& payload) const {
  const auto found = payloads_.find(payload);
  return found != payloads_.end() && found->second.whole;
}

bool PayloadSources::has_holder(const Contribution& payload) const {
  return std::any_of(held_by_.begin(), held_by_.end(),
                     [&](const auto& held) { return held.second.contains(payload); });
}

std::vector<Contribution> PayloadSources::whole() const {
  std::vector<Contribution> all;
  for (const auto& [id, payload] : payloads_) {
    if (payload.whole) all.push_back(id);
  }
  return all;
}

std::vector<Contribution> PayloadSources::known() const {
  std::vector<Contribution> all;
  for (const auto& [id, payload] : payloads_) all.push_back(id);
  return all;
}

void PayloadSources::measure(TimePoint now, int from, std::uint64_t count) {
  Flow& flow = flows_[from];
  if (flow.last == TimePoint{} || now - flow.last > kFlowPause) {
    flow.began = now;
    flow.bytes = 0;
  } else {
    flow.bytes += count;
  }
  flow.last = now;
  const Duration lasted = now - flow.began;
  if (lasted >= kShortFlow) flow.rate = static_cast<double>(flow.bytes) / to_seconds(lasted);
}

std::map<int, std::uint64_t> PayloadSources::rates() const {
  std::map<int, std::uint64_t> all;
  for (const auto& [site, flow] : flows_) {
    if (flow.rate > 0) all[site] = static_cast<std::uint64_t>(flow.rate);
  }
  return all;
}

}  // namespace dlaunch

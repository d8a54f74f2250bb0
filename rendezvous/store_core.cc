#include "rendezvous/store_core.h"

#include <algorithm>
#include <charconv>

namespace dlaunch {
namespace {

// The keys for a time-out's message: a list of hundreds would be unreadable, so it names only some.
std::string name_keys(const std::set<std::string>& keys) {
  constexpr std::size_t kNamed = 16;
  std::string text;
  std::size_t named = 0;
  for (const auto& key : keys) {
    if (named == kNamed) return text + " and " + std::to_string(keys.size() - named) + " more";
    if (named++ > 0) text += ", ";
    text += key;
  }
  return text;
}

std::optional<std::int64_t> to_number(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (err != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::vector<StoreCore::Answer> StoreCore::step(TimePoint now, const Event& event) {
  answers_.clear();
  if (const auto* asked = std::get_if<Asked>(&event)) {
    ask(now, asked->from, asked->request);
  } else if (const auto* closed = std::get_if<Closed>(&event)) {
    close(closed->from);
  }
  expire(now);
  return std::move(answers_);
}

std::optional<TimePoint> StoreCore::deadline() const {
  if (deadlines_.empty() || deadlines_.begin()->first == kNever) return std::nullopt;
  return deadlines_.begin()->first;
}

void StoreCore::ask(TimePoint now, Connection from, const StoreRequest& request) {
  if (request.op == StoreOp::get || request.op == StoreOp::wait) return wait(now, from, request);
  StoreReply reply{.id = request.id};
  switch (request.op) {
    case StoreOp::set:
      write(request.key, request.value, reply);
      break;
    case StoreOp::compare_and_set:
      compare_and_set(request, reply);
      break;
    case StoreOp::add:
      add(request, reply);
      break;
    case StoreOp::delete_prefix:
      delete_prefix(request.key, reply);
      break;
    default: {  // try_get
      const auto it = values_.find(request.key);
      if (it == values_.end())
        reply.status = StoreStatus::absent;
      else
        reply.value = it->second;
    }
  }
  answers_.push_back({from, std::move(reply)});
}

void StoreCore::write(const std::string& key, const std::string& value, StoreReply& reply) {
  const auto it = values_.find(key);
  const std::size_t freed = it == values_.end() ? 0 : key.size() + it->second.size();
  const std::size_t after = bytes_ - freed + key.size() + value.size();
  if (after > max_bytes_) {
    reply.status = StoreStatus::full;
    return;
  }
  bytes_ = after;
  values_[key] = value;
  reply.value = value;
  if (it == values_.end()) wake(key);
}

void StoreCore::compare_and_set(const StoreRequest& request, StoreReply& reply) {
  const auto it = values_.find(request.key);
  const bool equal = it == values_.end() ? !request.expected : request.expected == it->second;
  if (equal) return write(request.key, request.value, reply);
  if (it == values_.end())
    reply.status = StoreStatus::absent;
  else
    reply.value = it->second;
}

void StoreCore::add(const StoreRequest& request, StoreReply& reply) {
  const auto it = values_.find(request.key);
  const auto old = it == values_.end() ? std::optional<std::int64_t>(0) : to_number(it->second);
  if (!old || __builtin_add_overflow(*old, request.delta, &reply.number)) {
    reply.status = StoreStatus::not_number;
    return;
  }
  write(request.key, std::to_string(reply.number), reply);
}

void StoreCore::delete_prefix(const std::string& prefix, StoreReply& reply) {
  auto it = values_.lower_bound(prefix);
  while (it != values_.end() && it->first.starts_with(prefix)) {
    bytes_ -= it->first.size() + it->second.size();
    it = values_.erase(it);
    ++reply.number;
  }
}

void StoreCore::wait(TimePoint now, Connection from, const StoreRequest& request) {
  const bool wants_value = request.op == StoreOp::get;
  Waiter waiter{from, request.id, wants_value, {}, deadline_after(now, request.timeout)};
  if (request.timeout < Duration::zero()) waiter.until = now;
  if (wants_value)
    waiter.missing.insert(request.key);
  else
    waiter.missing.insert(request.keys.begin(), request.keys.end());
  std::erase_if(waiter.missing, [&](const auto& key) { return values_.contains(key); });
  if (!waiter.missing.empty()) {
    if (may_wait(from, waiter.missing.size())) return add_waiter(std::move(waiter));
    answers_.push_back({from, StoreReply{.status = StoreStatus::too_many, .id = request.id}});
    return;
  }
  answers_.push_back({from, StoreReply{.id = request.id}});
  if (wants_value) answers_.back().reply.value = values_.at(request.key);
}

bool StoreCore::may_wait(Connection from, std::size_t keys) const {
  const auto it = waits_of_.find(from);
  if (it == waits_of_.end()) return keys <= kMaxWaitKeys;
  return it->second.ids.size() < kMaxWaits && it->second.keys + keys <= kMaxWaitKeys;
}

void StoreCore::add_waiter(Waiter waiter) {
  const WaiterId id = next_waiter_++;
  auto& waits = waits_of_[waiter.from];
  waits.ids.insert(id);
  waits.keys += waiter.missing.size();
  for (const auto& key : waiter.missing) waiters_of_key_[key].insert(id);
  deadlines_.emplace(waiter.until, id);
  waiters_.emplace(id, std::move(waiter));
}

void StoreCore::drop_waiter(WaiterId id) {
  const auto it = waiters_.find(id);
  const auto& waiter = it->second;
  for (const auto& key : waiter.missing) {
    const auto of_key = waiters_of_key_.find(key);
    of_key->second.erase(id);
    if (of_key->second.empty()) waiters_of_key_.erase(of_key);
  }
  const auto of_connection = waits_of_.find(waiter.from);
  of_connection->second.ids.erase(id);
  of_connection->second.keys -= waiter.missing.size();
  if (of_connection->second.ids.empty()) waits_of_.erase(of_connection);
  deadlines_.erase({waiter.until, id});
  waiters_.erase(it);
}

void StoreCore::wake(const std::string& key) {
  const auto found = waiters_of_key_.extract(key);
  if (found.empty()) return;
  for (const WaiterId id : found.mapped()) {
    auto& waiter = waiters_.at(id);
    waiter.missing.erase(key);
    --waits_of_.at(waiter.from).keys;
    if (!waiter.missing.empty()) continue;
    answers_.push_back({waiter.from, StoreReply{.id = waiter.id}});
    if (waiter.wants_value) answers_.back().reply.value = values_.at(key);
    drop_waiter(id);
  }
}

void StoreCore::close(Connection from) {
  const auto it = waits_of_.find(from);
  if (it == waits_of_.end()) return;
  const auto ids = it->second.ids;  // dropping the last of them removes the entry
  for (const WaiterId id : ids) drop_waiter(id);
}

void StoreCore::expire(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const WaiterId id = deadlines_.begin()->second;
    const auto& waiter = waiters_.at(id);
    answers_.push_back({waiter.from, StoreReply{.status = StoreStatus::timeout,
                                                .id = waiter.id,
                                                .value = name_keys(waiter.missing)}});
    drop_waiter(id);
  }
}

}  // namespace dlaunch

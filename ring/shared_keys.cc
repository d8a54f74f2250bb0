#include "ring/shared_keys.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "ring/bootstrap.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLongest = 500;
// After each slice a wait for a key checks whether the round is over, and lets other threads in.
constexpr Duration kSlice = std::chrono::milliseconds(20);

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const auto* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return {};
  return number;
}

}  // namespace

Result<std::string> SharedKeys::place_of(std::string_view key) const {
  if (abort_.raised()) return abort_.error();
  if (key.empty() || key.size() > kLongest) {
    return Error{.code = Errc::usage, .what = "a key has 1 to 500 bytes"};
  }
  // A key with '/' must be no key of a group, whose key space begins with that of its parent.
  return fmt::format("ring/keys/{}//{}", job_.key_space(), key);
}

Result<Store*> SharedKeys::store() {
  if (!store_ && !alone()) {
    auto opened = open_job_store(job_, steady_now() + answer_time_);
    if (!opened) {
      Error error = opened.error();
      // A time-out would mean that a key does not exist.
      if (error.code == Errc::timeout) error.code = Errc::io;
      return error;
    }
    store_ = std::move(*opened);
  }
  return store_.get();
}

Result<void> SharedKeys::set(std::string_view key, std::string_view value) {
  const auto place = place_of(key);
  if (!place) return place.error();
  const Lock lock(mutex_);
  const auto kept = store();
  if (!kept) return kept.error();
  if (*kept != nullptr) return (*kept)->set(*place, value, steady_now() + answer_time_);
  if (auto ok = check_size(*place, value); !ok) return ok;
  own_[*place] = value;
  own_changed_.notify_all();
  return {};
}

Result<std::string> SharedKeys::look(Lock& lock, const std::string& place, TimePoint until) {
  const auto kept = store();
  if (!kept) return kept.error();
  if (*kept != nullptr) return (*kept)->get(place, until);
  if (own_changed_.wait_until(lock, until, [&] { return own_.contains(place); })) {
    return own_[place];
  }
  return Error{.code = Errc::timeout, .what = {}};
}

Result<std::string> SharedKeys::get(std::string_view key, Duration patience) {
  const auto deadline = deadline_after(steady_now(), patience);
  for (;;) {
    const auto place = place_of(key);
    if (!place) return place.error();
    {
      Lock lock(mutex_);
      auto value = look(lock, *place, std::min(deadline, steady_now() + kSlice));
      if (value || value.error().code != Errc::timeout) return value;
    }
    if (steady_now() < deadline) continue;
    return Error{.code = Errc::timeout,
                 .what = fmt::format("key '{}' does not exist after {}", escaped(std::string(key)),
                                     format_duration(patience))};
  }
}

Result<std::int64_t> SharedKeys::add(std::string_view key, std::int64_t delta) {
  const auto place = place_of(key);
  if (!place) return place.error();
  const Lock lock(mutex_);
  const auto kept = store();
  if (!kept) return kept.error();
  if (*kept != nullptr) return (*kept)->add(*place, delta, steady_now() + answer_time_);
  const auto own = own_.try_emplace(*place, "0").first;
  const auto was = number_in(own->second);
  std::int64_t sum = 0;
  if (!was || __builtin_add_overflow(*was, delta, &sum)) {
    return Error{.code = Errc::usage, .what = fmt::format("key '{}' does not hold a number", key)};
  }
  own->second = std::to_string(sum);
  own_changed_.notify_all();
  return sum;
}

}  // namespace dlaunch

#include "rendezvous/etcd_store.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

// etcd's own limit for one transaction is 128.
constexpr std::size_t kKeysAtOnce = 100;

// The end of the waiting must not cut the last look short.
TimePoint last_look(TimePoint deadline) {
  return deadline_after(std::max(deadline, steady_now()), std::chrono::seconds(1));
}

class EtcdStore final : public Store {
 public:
  EtcdStore(std::unique_ptr<EtcdClient> client, const std::string& job_id)
      : client_(std::move(client)), prefix_(client_->prefix() + job_id + "/store/") {}

  Result<void> set(std::string_view key, std::string_view value, TimePoint deadline) override {
    if (auto fits = check_size(key, value); !fits) return fits;
    auto done = client_->transact({{}, {EtcdPut{full(key), std::string(value)}}, {}}, deadline);
    if (!done) return done.error();
    return {};
  }

  Result<std::string> get(std::string_view key, TimePoint deadline) override {
    while (true) {
      if (auto there = wait({std::string(key)}, deadline); !there) return there.error();
      auto value = try_get(key, last_look(deadline));
      if (!value) return value.error();
      if (*value) return std::move(**value);
    }
  }

  Result<std::optional<std::string>> try_get(std::string_view key, TimePoint deadline) override {
    auto item = read(key, deadline);
    if (!item) return item.error();
    return *item ? std::optional(std::move((*item)->value)) : std::nullopt;
  }

  Result<std::string> compare_and_set(std::string_view key,
                                      std::optional<std::string_view> expected,
                                      std::string_view desired, TimePoint deadline) override;
  Result<std::int64_t> add(std::string_view key, std::int64_t delta, TimePoint deadline) override;
  Result<void> wait(const std::vector<std::string>& keys, TimePoint deadline) override;

  Result<std::int64_t> delete_prefix(std::string_view prefix, TimePoint deadline) override {
    auto done = client_->transact({{}, {EtcdDelete{full(prefix), true}}, {}}, deadline);
    if (!done) return done.error();
    return done->deleted;
  }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  Result<std::optional<EtcdItem>> read(std::string_view key, TimePoint deadline);
  Result<std::vector<std::string>> missing(const std::vector<std::string>& keys,
                                           TimePoint deadline);

  std::unique_ptr<EtcdClient> client_;
  const std::string prefix_;
  std::int64_t seen_ = 0;  // the revision of the latest answer
};

Result<std::optional<EtcdItem>> EtcdStore::read(std::string_view key, TimePoint deadline) {
  auto answer = client_->transact({{}, {EtcdGet{full(key)}}, {}}, deadline);
  if (!answer) return answer.error();
  seen_ = answer->revision;
  if (answer->items.empty()) return std::optional<EtcdItem>();
  return std::optional(std::move(answer->items.front()));
}

Result<std::string> EtcdStore::compare_and_set(std::string_view key,
                                               std::optional<std::string_view> expected,
                                               std::string_view desired, TimePoint deadline) {
  if (auto fits = check_size(key, desired); !fits) return fits.error();
  if (auto fits = check_size(key, expected.value_or("")); !fits) return fits.error();
  EtcdCondition as_expected{.key = full(key)};
  if (expected) {
    as_expected.of = EtcdCondition::Of::value;
    as_expected.value = *expected;
  }
  // A repeated request finds the value that the first one has set.
  auto answer = client_->transact(
      {{as_expected}, {EtcdPut{full(key), std::string(desired)}}, {EtcdGet{full(key)}}}, deadline);
  if (!answer) return answer.error();
  if (answer->held) return std::string(desired);
  return answer->items.empty() ? std::string() : std::move(answer->items.front().value);
}

Result<std::int64_t> EtcdStore::add(std::string_view key, std::int64_t delta, TimePoint deadline) {
  while (true) {
    auto old = read(key, deadline);
    if (!old) return old.error();
    const std::string text = *old ? (*old)->value : "0";
    std::int64_t sum = 0;
    const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), sum);
    if (err != std::errc() || end != text.data() + text.size() ||
        __builtin_add_overflow(sum, delta, &sum)) {
      return Error{
          .code = Errc::usage,
          .what = "store " + client_->name() + ": " + std::string(key) + " does not hold a number"};
    }
    const EtcdCondition unchanged{full(key), EtcdCondition::Of::changed, *old ? (*old)->changed : 0,
                                  ""};
    auto answer = client_->transact({{unchanged}, {EtcdPut{full(key), std::to_string(sum)}}, {}},
                                    deadline, false);
    if (!answer) return answer.error();
    if (answer->held) return sum;
    if (steady_now() >= deadline) {
      return Error{
          .code = Errc::timeout,
          .what = fmt::format("store {}: other processes keep changing {}", client_->name(), key)};
    }
  }
}

Result<std::vector<std::string>> EtcdStore::missing(const std::vector<std::string>& keys,
                                                    TimePoint deadline) {
  std::vector<std::string> absent;
  for (std::size_t first = 0; first < keys.size(); first += kKeysAtOnce) {
    const auto last = std::min(first + kKeysAtOnce, keys.size());
    EtcdTransaction ask;
    for (std::size_t i = first; i < last; ++i) ask.then.push_back(EtcdGet{full(keys[i]), false});
    auto answer = client_->transact(ask, deadline);
    if (!answer) return answer.error();
    if (first == 0) seen_ = answer->revision;  // later changes are news for all keys
    for (std::size_t i = first; i < last; ++i) {
      const auto there = std::any_of(answer->items.begin(), answer->items.end(),
                                     [&](const auto& item) { return item.key == full(keys[i]); });
      if (!there) absent.push_back(keys[i]);
    }
  }
  return absent;
}

Result<void> EtcdStore::wait(const std::vector<std::string>& keys, TimePoint deadline) {
  const auto started = steady_now();
  const auto answer_by = last_look(deadline);
  std::vector<std::string> absent = keys;
  while (true) {
    auto still = missing(absent, answer_by);
    if (!still) return still.error();
    absent = std::move(*still);
    if (absent.empty()) return {};
    const auto now = steady_now();
    if (now >= deadline) {
      return Error{.code = Errc::timeout,
                   .what = fmt::format("store {}: waited {} for {}", client_->name(),
                                       format_duration(now - started), fmt::join(absent, ", "))};
    }
    client_->wait_change(full(absent.front()), seen_, deadline);
  }
}

}  // namespace

Result<std::unique_ptr<Store>> open_etcd_store(EtcdAccess access, const std::string& job_id) {
  auto client = EtcdClient::open(std::move(access));
  if (!client) return client.error();
  return std::unique_ptr<Store>(new EtcdStore(std::move(*client), job_id));
}

}  // namespace dlaunch

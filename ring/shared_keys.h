// SharedKeys: the keys of dl_key_set() and its kin. They lie in the store where the ranks met,
// under the prefix of the round and the group; in a world of one, in this object. The
// first call makes the connection. Any number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "rendezvous/store.h"
#include "ring/call/abort_flag.h"
#include "ring/fair_mutex.h"
#include "ring/links/job_view.h"

namespace dlaunch {

class SharedKeys {
 public:
  // `job` and the flag must outlive this. The flag ends every wait, and gives the error of every
  // later call. answer_time: for each answer of the store.
  SharedKeys(const JobView& job, const AbortFlag& abort,
             Duration answer_time = std::chrono::seconds(30))
      : job_(job), abort_(abort), answer_time_(answer_time) {}

  Result<void> set(std::string_view key, std::string_view value);
  // Waits until the key exists; Errc::timeout after `patience`.
  Result<std::string> get(std::string_view key, Duration patience);
  // Adds to a decimal number; a missing key counts as 0.
  Result<std::int64_t> add(std::string_view key, std::int64_t delta);

 private:
  using Lock = std::unique_lock<FairMutex>;

  bool alone() const { return job_.store_url.empty(); }
  Result<std::string> place_of(std::string_view key) const;
  // The connected store; null: there is no store, and own_ replaces it.
  Result<Store*> store();
  Result<std::string> look(Lock& lock, const std::string& place, TimePoint until);

  const JobView& job_;
  const AbortFlag& abort_;
  const Duration answer_time_;
  FairMutex mutex_;
  std::unique_ptr<Store> store_;
  std::map<std::string, std::string> own_;
  std::condition_variable_any own_changed_;
};

}  // namespace dlaunch

// Store: the small shared key space through which the members of one round find each other.
//
// One interface, several back ends behind open_store(): tcp:// (a server embedded in dlaunch or in
// rank 0), file:// (a folder on a shared file system), etcd:// (etcd_store.h). Values are bytes.
// Keys of a round carry its number ("r1/ring/addr/3"), so that a late writer of an older round
// changes nothing that counts.
//
// Every call blocks the calling thread until it is done or `deadline` has passed (Errc::timeout;
// the error names what it waited for and how long). A Store stays unusable after its connection
// failed or a call timed out in the middle of a message (Errc::io, with the reason): open it again.
// A Store object is for one thread at a time; any number of processes use the same key space, and
// each operation is atomic among them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

inline constexpr std::size_t kMaxKeyBytes = 1024;
inline constexpr std::size_t kMaxValueBytes = 1 << 20;
// Errc::usage if one is too long.
Result<void> check_size(std::string_view key, std::string_view value);

class Store {
 public:
  virtual ~Store() = default;

  virtual Result<void> set(std::string_view key, std::string_view value, TimePoint deadline) = 0;
  // Waits until the key exists, then returns its value.
  virtual Result<std::string> get(std::string_view key, TimePoint deadline) = 0;
  // Does not wait; nullopt: the key does not exist.
  virtual Result<std::optional<std::string>> try_get(std::string_view key, TimePoint deadline) = 0;
  // If the key's value equals `expected` (nullopt: the key does not exist), it becomes `desired`.
  // Returns the resulting value.
  virtual Result<std::string> compare_and_set(std::string_view key,
                                              std::optional<std::string_view> expected,
                                              std::string_view desired, TimePoint deadline) = 0;
  // Adds to a decimal counter (a missing key counts as 0) and returns the sum.
  virtual Result<std::int64_t> add(std::string_view key, std::int64_t delta,
                                   TimePoint deadline) = 0;
  // Waits until all keys exist. The error of a time-out names the missing keys.
  virtual Result<void> wait(const std::vector<std::string>& keys, TimePoint deadline) = 0;
  // Removes every key that starts with the prefix and returns how many there were.
  virtual Result<std::int64_t> delete_prefix(std::string_view prefix, TimePoint deadline) = 0;
};

struct StoreOptions {
  std::string job_id;  // a server of another job refuses us, naming both jobs
  Secret secret;
  std::string who;               // our name in the other side's messages: "rank 3 (pid 4711)"
  Environment environment = {};  // for etcd://: our credentials (etcd_client.h)
};

// url: "tcp://host:port", "file:///folder" or "etcd://host:port,…/prefix". Retries a tcp:// server
// that is not up yet until the deadline; a refusal (wrong job, wrong secret) is final at once
// (Errc::auth).
Result<std::unique_ptr<Store>> open_store(const std::string& url, const StoreOptions& options,
                                          TimePoint deadline);

// The store's host, or the first of several; empty if the URL names none.
std::string store_host(const std::string& url);

}  // namespace dlaunch

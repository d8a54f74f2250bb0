// StoreCore: the data and decisions of a store server. Pure: requests in, replies out; no sockets,
// no clock, no threads. It keeps waiting requests until their key appears, their time is over, or
// their connection is gone. It finds them by key, connection and deadline, so that thousands of
// ranks may wait at once. One connection may have kMaxWaits requests waiting for kMaxWaitKeys
// missing keys together; StoreStatus::too_many refuses any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "rendezvous/wire.h"

namespace dlaunch {

inline constexpr std::size_t kMaxWaits = 64;

class StoreCore {
 public:
  using Connection = std::uint64_t;

  struct Asked {
    Connection from;
    StoreRequest request;
  };
  struct Closed {
    Connection from;
  };
  struct Deadline {};
  using Event = std::variant<Asked, Closed, Deadline>;

  struct Answer {
    Connection to;
    StoreReply reply;
  };

  // max_bytes bounds keys and values together.
  explicit StoreCore(std::size_t max_bytes = std::size_t{256} << 20) : max_bytes_(max_bytes) {}

  std::vector<Answer> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  std::size_t keys() const { return values_.size(); }

 private:
  using WaiterId = std::uint64_t;  // in the order of asking

  struct Waiter {
    Connection from;
    std::uint32_t id;
    bool wants_value;
    std::set<std::string> missing;
    TimePoint until;
  };
  struct Waits {  // of one connection
    std::set<WaiterId> ids;
    std::size_t keys = 0;  // missing keys, over all waits
  };

  void ask(TimePoint now, Connection from, const StoreRequest& request);
  void write(const std::string& key, const std::string& value, StoreReply& reply);
  void compare_and_set(const StoreRequest& request, StoreReply& reply);
  void add(const StoreRequest& request, StoreReply& reply);
  void delete_prefix(const std::string& prefix, StoreReply& reply);
  void wait(TimePoint now, Connection from, const StoreRequest& request);
  bool may_wait(Connection from, std::size_t keys) const;
  void add_waiter(Waiter waiter);
  void drop_waiter(WaiterId id);
  void wake(const std::string& key);
  void close(Connection from);
  void expire(TimePoint now);

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::string, std::string> values_;
  std::map<WaiterId, Waiter> waiters_;
  std::map<std::string, std::set<WaiterId>> waiters_of_key_;
  std::map<Connection, Waits> waits_of_;
  std::set<std::pair<TimePoint, WaiterId>> deadlines_;
  WaiterId next_waiter_ = 1;
  std::vector<Answer> answers_;
};

}  // namespace dlaunch

// StoreCore: what a store server knows and decides. Pure: it takes requests and gives replies; no
// sockets, no clock, no threads. Requests that must wait are kept until their key appears, their
// time is over, or their connection is gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "rendezvous/wire.h"

namespace dlaunch {

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
  struct Waiter {
    Connection from;
    std::uint32_t id;
    bool wants_value;
    std::set<std::string> missing;
    TimePoint since;
    TimePoint until;
  };

  void ask(TimePoint now, Connection from, const StoreRequest& request);
  void write(const std::string& key, const std::string& value, StoreReply& reply);
  void compare_and_set(const StoreRequest& request, StoreReply& reply);
  void add(const StoreRequest& request, StoreReply& reply);
  void delete_prefix(const std::string& prefix, StoreReply& reply);
  void wait(TimePoint now, Connection from, const StoreRequest& request);
  void wake(const std::string& key);
  void expire(TimePoint now);

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::string, std::string> values_;
  std::vector<Waiter> waiters_;
  std::vector<Answer> answers_;
};

}  // namespace dlaunch

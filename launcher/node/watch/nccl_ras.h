// Asks NCCL's RAS service about the workers of this host. All NCCL processes of a user on a host
// listen on its port, also those of other jobs, and the kernel chooses which of them answers for
// its own job. So an answer may be about another job, or may not come as that process is stopped:
// then NcclRas asks again, on another connection.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "base/clock.h"
#include "launcher/node/watch/ras_report.h"

namespace dlaunch {

inline constexpr Duration kRasLimit = std::chrono::milliseconds(800);  // as for stacks in haste

class NcclRas {
 public:
  using Done = std::function<void(const RasReport&)>;

  explicit NcclRas(asio::io_context& loop) : loop_(loop) {}

  // Returns at once; the loop calls `done`, always once, after kRasLimit at the latest: with an
  // empty report if the process has no RAS service, or if RAS has nothing to say about our workers.
  // Questions to one port at one time become one.
  void ask(pid_t pid, Done done);

 private:
  class Question;

  asio::io_context& loop_;
  std::map<std::uint16_t, std::weak_ptr<Question>> open_;  // by port
};

// The port of the service in a process of that environment; 0: it has switched RAS off.
std::uint16_t ras_port(pid_t pid);

// The addresses at which sockets of that user listen on the port, each once. `table` is the
// kernel's /proc/net/tcp or tcp6. Another user cannot answer in the place of NCCL.
std::vector<asio::ip::tcp::endpoint> listeners(std::istream& table, std::uint16_t port, uid_t user);

}  // namespace dlaunch

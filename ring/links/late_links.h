// LateLinks: links between ranks of one host that have shared memory and no link yet. The first of
// a pair that needs one connects to the other's listening socket and sends its rank and the other's
// token, which only ranks that have mapped the shared memory know. Both ends also ask the kernel
// for the other's user. Connecting does not wait for the other process, even if that stands still.
// Not thread-safe, but connect() may run beside accept().
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/links/contact.h"
#include "ring/links/late_source.h"

namespace dlaunch {

// The process at the other end of an AF_UNIX socket has this process's user, as the kernel says.
bool is_of_own_user(int unix_socket);

class LateLinks final : public LateSource {
 public:
  static Result<std::unique_ptr<LateLinks>> open(int rank, UniqueFd listener, Contacts contacts);

  int descriptor() const override { return epoll_.get(); }
  // EAGAIN if too many wait for that rank to accept.
  Result<UniqueFd> connect(int rank) override;
  // Those that other ranks have made. Drops strangers.
  Made accept() override;
  void close_in_child() override;

 private:
  // A connection whose greeting is not complete.
  struct Stranger {
    UniqueFd fd;
    std::string said;
    TimePoint since;
  };

  void let_in(Made& made);
  bool advance(Stranger& from, Made& made) const;
  int rank_of(const std::string& greeting) const;

  int rank_ = -1;
  UniqueFd listener_, epoll_;
  Contacts contacts_;
  std::list<Stranger> strangers_;  // the oldest first
};

}  // namespace dlaunch

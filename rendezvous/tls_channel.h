// TlsChannel: TLS 1.3 on one connected socket, between two that hold the same secret. The secret is
// the pre-shared key (RFC 8446, psk_dhe_ke: what is recorded stays closed to whoever gets the
// secret later), AES-128-GCM the cipher; there are no certificates. A thin shell around OpenSSL,
// which does it in the kernel where that has TLS. Non-blocking; not thread-safe; SIGPIPE must be
// blocked.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/secret.h"

namespace dlaunch {

class TlsChannel {
 public:
  enum class Side { connector, acceptor };
  // First of all, by one thread. Whoever registers with atexit() afterwards comes before OpenSSL
  // then. Errc::unsupported: there is no OpenSSL here.
  static Result<void> prepare();
  // `fd` is not owned.
  static Result<std::unique_ptr<TlsChannel>> open(int fd, Side side, const Secret& secret);
  ~TlsChannel();
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  enum class Outcome {
    moved,
    again,   // once the socket can be read or written
    ended,   // the other side has closed its direction, or the connection
    refused  // what comes is not TLS, or of another secret: why()
  };
  struct Moved {
    Outcome outcome = Outcome::again;
    std::size_t bytes = 0;
  };
  // First of all, until it has `moved`.
  Moved shake_hands();
  Moved read(char* to, std::size_t room);
  // What it has taken is in the kernel, or comes first in the next call, whose bytes begin with
  // those that were not taken.
  Moved write(const char* from, std::size_t bytes);
  // Tells the other side that no more will be written.
  void end_writing();

  const std::string& why() const { return why_; }

 private:
  struct Ssl;
  explicit TlsChannel(std::unique_ptr<Ssl> ssl);
  Moved outcome_of(int result, std::size_t bytes);

  std::unique_ptr<Ssl> ssl_;
  std::string why_;
};

}  // namespace dlaunch

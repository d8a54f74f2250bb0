// TlsChannel: TLS 1.3 on one connected socket, between two holders of the same secret. The secret
// is the pre-shared key (RFC 8446, psk_dhe_ke: a thief who gets the secret later cannot decrypt
// recordings), AES-128-GCM the cipher; there are no certificates. A thin shell around OpenSSL,
// which uses the kernel's TLS where available. Non-blocking; not thread-safe; SIGPIPE must be
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
  // Call it first, in one thread. Functions registered with atexit() later run before OpenSSL's.
  // Errc::unsupported: there is no OpenSSL here.
  static Result<void> prepare();
  // `fd` is not owned.
  static Result<std::unique_ptr<TlsChannel>> open(int fd, Side side, const Secret& secret);
  ~TlsChannel();
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  enum class Outcome {
    moved,
    again,   // when the socket is readable or writable
    ended,   // the other side has closed its direction, or the connection
    refused  // the bytes are not TLS, or are of another secret: why()
  };
  struct Moved {
    Outcome outcome = Outcome::again;
    std::size_t bytes = 0;
  };
  // Call it first, until it has `moved`.
  Moved shake_hands();
  Moved read(char* to, std::size_t room);
  // The bytes taken are in the kernel or come first in the next call. That call must begin with the
  // bytes not taken.
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

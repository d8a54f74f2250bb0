// The job's secret and values derived from it. A secret travels by a 0600 file
// (DLAUNCH_SECRET_FILE), never in argv, a log or the environment.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>

#include "base/result.h"
#include "base/sha256.h"

namespace dlaunch {

using Mac = Digest;
inline constexpr std::size_t kMacBytes = std::tuple_size_v<Mac>;

class Secret {
 public:
  // No secret: programs started by hand without one. Handshakes then only keep jobs apart.
  Secret() = default;
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}

  // 256 random bits.
  static Result<Secret> random();
  // Reads a secret file: its bytes less trailing white space, 16 to 4096 of them. Refuses a file
  // that others may read or write, with one exception: our group may read a file that root lends to
  // it, as Kubernetes does.
  static Result<Secret> load(const std::string& path);

  // The same, but makes a missing file, with 256 random bits, and its folder. If several processes
  // do so at once, also on several hosts that share the folder, all get the same secret.
  static Result<Secret> load_or_make(const std::string& path);

  // Whether connections between holders of the secret are encrypted (--tls); the default is no.
  bool encrypts() const { return encrypts_; }
  void set_encrypts(bool encrypts) { encrypts_ = encrypts; }

  bool empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }

  // HMAC-SHA256 of the message under this secret.
  Mac mac(std::string_view message) const;

 private:
  std::string bytes_;
  bool encrypts_ = false;
};

// Compares in constant time.
bool macs_equal(std::string_view a, std::string_view b);

// `bytes` random bytes as lower-case hex (2 * bytes characters): job ids, socket names, nonces.
Result<std::string> random_hex(std::size_t bytes);
Result<std::string> random_bytes(std::size_t bytes);

// SHA-256 of the bytes, as lower-case hex.
std::string sha256_hex(std::string_view bytes);

}  // namespace dlaunch

// HttpClient: requests to a web server, by libcurl. The library is loaded when the first client is
// opened, not linked: whoever does without etcd does without it, and a dlaunch that is copied to
// another host starts there whatever is installed. libcurl.so.4 is looked for, then Debian's
// libcurl-gnutls.so.4. No proxy is asked, no redirection followed.
//
// A client keeps its connection open for the next request. For one thread at a time; it blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

// Files in PEM. Empty: the system's authorities; no certificate of our own.
struct HttpTls {
  std::string authorities;
  std::string certificate, key;
};

struct HttpReply {
  long status = 0;
  std::string body;  // at most 64 MiB
};

class HttpClient {
 public:
  // Errc::unsupported where the library, or support for it in this build, is missing.
  static Result<std::unique_ptr<HttpClient>> open(const HttpTls& tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends a JSON body. token: for the Authorization header; empty: none. With `take` the reply's
  // body goes there piece by piece until it returns false, which ends the request well.
  // Errors: io, the server was not reached; peer_lost and timeout, what it did is not known; auth,
  // it could not prove who it is, or we could not.
  using Take = std::function<bool(std::string_view)>;
  Result<HttpReply> post(const std::string& url, const std::string& body, const std::string& token,
                         TimePoint deadline, const Take& take = {});

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch

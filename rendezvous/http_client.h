// HttpClient: requests to a web server, by libcurl. The first client loads the library at run time,
// so users without etcd do not need it, and a dlaunch copied to another host starts there whatever
// is installed. It looks for libcurl.so.4, then for Debian's libcurl-gnutls.so.4. It uses no proxy
// and follows no redirection.
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

// PEM files. Empty: the system's authorities; no certificate of our own.
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
  // Errc::unsupported: the library is missing, or this build does not support it.
  static Result<std::unique_ptr<HttpClient>> open(const HttpTls& tls);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends a JSON body. token: for the Authorization header; empty: none. With `take`, each piece of
  // the reply's body goes there until it returns false, which ends the request successfully.
  // Errors: io, the server was not reached; peer_lost and timeout, the outcome is unknown; auth,
  // one side could not prove its identity.
  using Take = std::function<bool(std::string_view)>;
  Result<HttpReply> post(const std::string& url, const std::string& body, const std::string& token,
                         TimePoint deadline, const Take& take = {});

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch

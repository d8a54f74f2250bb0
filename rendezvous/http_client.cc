#include "rendezvous/http_client.h"

#ifdef DLAUNCH_HAVE_CURL
#include <curl/curl.h>

#include <algorithm>

#include "base/symbols.h"

// curl's macros check types, but call the function by name.
#undef curl_easy_setopt
#undef curl_easy_getinfo
#endif

namespace dlaunch {

#ifdef DLAUNCH_HAVE_CURL
namespace {

constexpr std::size_t kMaxReply = std::size_t{64} << 20;
constexpr long kConnectMs = 2000;

struct Library {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  std::string why_not;  // empty: the library is complete
};

Library load() {
  Library curl{};
  SymbolReader symbols{.library = open_library("libcurl.so.4")};
  if (symbols.library == nullptr) symbols.library = open_library("libcurl-gnutls.so.4");
  if (symbols.library == nullptr) {
    curl.why_not = "etcd:// needs libcurl.so.4, which is not installed on this host";
    return curl;
  }
  symbols.read(curl.global_init, "curl_global_init");
  symbols.read(curl.easy_init, "curl_easy_init");
  symbols.read(curl.easy_cleanup, "curl_easy_cleanup");
  symbols.read(curl.easy_setopt, "curl_easy_setopt");
  symbols.read(curl.easy_getinfo, "curl_easy_getinfo");
  symbols.read(curl.easy_perform, "curl_easy_perform");
  symbols.read(curl.easy_strerror, "curl_easy_strerror");
  symbols.read(curl.slist_append, "curl_slist_append");
  symbols.read(curl.slist_free_all, "curl_slist_free_all");
  if (symbols.missing != nullptr || curl.global_init(CURL_GLOBAL_ALL) != CURLE_OK) {
    curl.why_not = "etcd:// needs libcurl; the one that this host has cannot be used";
  }
  return curl;
}

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

struct Sink {
  const HttpClient::Take& take;
  std::string body;
  bool enough = false;
};

std::size_t write_body(char* data, std::size_t one, std::size_t size, void* to) {
  auto& sink = *static_cast<Sink*>(to);
  const std::string_view piece(data, one * size);
  if (sink.take) {
    sink.enough = !sink.take(piece);
    return sink.enough ? 0 : piece.size();
  }
  if (sink.body.size() + piece.size() > kMaxReply) return 0;
  sink.body += piece;
  return piece.size();
}

Errc kind_of(CURLcode code, bool sent) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR:  // also a reset within the TLS handshake
      return Errc::io;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return Errc::auth;
    case CURLE_OPERATION_TIMEDOUT:
      return sent ? Errc::timeout : Errc::io;
    default:
      return sent ? Errc::peer_lost : Errc::io;
  }
}

}  // namespace

struct HttpClient::Impl {
  CURL* easy = nullptr;
  char error[CURL_ERROR_SIZE] = "";
  ~Impl() {
    if (easy != nullptr) library().easy_cleanup(easy);
  }
  template <class Value>
  void set(CURLoption option, Value value) {
    library().easy_setopt(easy, option, value);
  }
};

Result<std::unique_ptr<HttpClient>> HttpClient::open(const HttpTls& tls) {
  const Library& curl = library();
  if (!curl.why_not.empty()) return Error{.code = Errc::unsupported, .what = curl.why_not};
  auto impl = std::make_unique<Impl>();
  impl->easy = curl.easy_init();
  if (impl->easy == nullptr) return Error{.code = Errc::io, .what = "libcurl: no memory"};
  impl->set(CURLOPT_NOSIGNAL, 1L);
  impl->set(CURLOPT_PROXY, "");
  impl->set(CURLOPT_ERRORBUFFER, impl->error);
  impl->set(CURLOPT_WRITEFUNCTION, &write_body);
  impl->set(CURLOPT_TCP_KEEPALIVE, 1L);
  impl->set(CURLOPT_TCP_KEEPIDLE, 2L);
  impl->set(CURLOPT_TCP_KEEPINTVL, 2L);
  impl->set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  if (!tls.authorities.empty()) impl->set(CURLOPT_CAINFO, tls.authorities.c_str());
  if (!tls.certificate.empty()) impl->set(CURLOPT_SSLCERT, tls.certificate.c_str());
  if (!tls.key.empty()) impl->set(CURLOPT_SSLKEY, tls.key.c_str());
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

Result<HttpReply> HttpClient::post(const std::string& url, const std::string& body,
                                   const std::string& token, TimePoint deadline, const Take& take) {
  const Library& curl = library();
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_now()).count();
  const long limit = std::clamp<long>(left, 1, 24L * 3600 * 1000);
  Sink sink{take, {}};
  curl_slist* headers = curl.slist_append(nullptr, "Content-Type: application/json");
  headers = curl.slist_append(headers, "Expect:");  // no question before a large body
  if (!token.empty()) headers = curl.slist_append(headers, ("Authorization: " + token).c_str());
  impl_->error[0] = '\0';
  impl_->set(CURLOPT_URL, url.c_str());
  impl_->set(CURLOPT_HTTPHEADER, headers);
  impl_->set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  impl_->set(CURLOPT_POSTFIELDS, body.data());
  impl_->set(CURLOPT_WRITEDATA, &sink);
  impl_->set(CURLOPT_CONNECTTIMEOUT_MS, std::min(limit, kConnectMs));
  impl_->set(CURLOPT_TIMEOUT_MS, limit);
  const CURLcode code = curl.easy_perform(impl_->easy);
  curl.slist_free_all(headers);
  HttpReply reply{0, std::move(sink.body)};
  curl.easy_getinfo(impl_->easy, CURLINFO_RESPONSE_CODE, &reply.status);
  if (code == CURLE_OK || sink.enough) return reply;
  long sent = 0;
  curl.easy_getinfo(impl_->easy, CURLINFO_REQUEST_SIZE, &sent);
  const char* why = impl_->error[0] != '\0' ? impl_->error : curl.easy_strerror(code);
  return Error{.code = kind_of(code, sent > 0), .what = why};
}

#else

struct HttpClient::Impl {};

Result<std::unique_ptr<HttpClient>> HttpClient::open(const HttpTls&) {
  return Error{.code = Errc::unsupported,
               .what = "this dlaunch was built without etcd://: libcurl's headers were missing"};
}

Result<HttpReply> HttpClient::post(const std::string&, const std::string&, const std::string&,
                                   TimePoint, const Take&) {
  return Error{.code = Errc::unsupported, .what = "no libcurl"};
}

#endif

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

}  // namespace dlaunch

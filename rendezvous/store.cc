#include "rendezvous/store.h"

#include "rendezvous/etcd_store.h"
#include "rendezvous/file_store.h"
#include "rendezvous/tcp_store.h"

namespace dlaunch {

Result<std::unique_ptr<Store>> open_store(const std::string& url, const StoreOptions& options,
                                          TimePoint deadline) {
  const auto colon = url.find("://");
  const auto scheme = url.substr(0, colon);
  const auto rest = colon == std::string::npos ? "" : url.substr(colon + 3);
  if (scheme == "tcp" && colon != std::string::npos) {
    auto endpoint = parse_endpoint(rest);
    if (!endpoint) return endpoint.error();
    return open_tcp_store(*endpoint, options, deadline);
  }
  if ((scheme == "etcd" || scheme == "etcds") && colon != std::string::npos) {
    auto access = etcd_access(url, options.environment);
    if (!access) return access.error();
    return open_etcd_store(std::move(*access), options.job_id);
  }
  if (scheme == "file" && rest.starts_with('/')) return open_file_store(rest, options.job_id);
  return Error{.code = Errc::usage,
               .what = "'" + url +
                       "' is not a rendezvous: tcp://host:port, file:///folder or "
                       "etcd://host:port,.../prefix"};
}

std::string store_host(const std::string& url) {
  const auto place = url.find("://");
  if (url.starts_with("file://") || place == url.npos) return "";
  const auto rest = std::string_view(url).substr(place + 3);
  const auto endpoint = parse_endpoint(rest.substr(0, rest.find_first_of(",/")), 1);
  return endpoint ? endpoint->host : "";
}

Result<void> check_size(std::string_view key, std::string_view value) {
  if (key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes) return {};
  return Error{.code = Errc::usage, .what = "store: key or value too long"};
}

}  // namespace dlaunch

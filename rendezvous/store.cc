#include "rendezvous/store.h"

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
  if (scheme == "file" && rest.starts_with('/')) return open_file_store(rest, options.job_id);
  return Error{.code = Errc::usage,
               .what = "'" + url + "' is not a rendezvous: tcp://host:port or file:///folder"};
}

}  // namespace dlaunch

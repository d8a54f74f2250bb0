// The requests that --metrics answers: HTTP/1.0 and 1.1, GET and HEAD of /metrics. Pure; fuzzed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

inline constexpr std::size_t kMaxHttpRequest = 8192;

struct HttpRequest {
  int status = 200;          // of the answer: 200, 400, 404, 405 or 431
  bool head = false;         // wants no body
  bool openmetrics = false;  // accepts OpenMetrics
};

// None: the request is not complete yet. A body is not read.
std::optional<HttpRequest> parse_http_request(std::string_view bytes);

// The whole answer, after which the connection closes.
std::string http_answer(const HttpRequest& request, std::string_view content_type,
                        std::string_view body);

}  // namespace dlaunch

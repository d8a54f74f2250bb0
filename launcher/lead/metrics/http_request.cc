#include "launcher/lead/metrics/http_request.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr std::string_view kPath = "/metrics";

// Up to the separator; takes it and the text before it away.
std::string_view take_until(std::string_view& text, std::string_view separator) {
  const auto at = std::min(text.find(separator), text.size());
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(std::min(at + separator.size(), text.size()));
  return before;
}

bool equal_words(std::string_view a, std::string_view b) {
  const auto same = [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same);
}

bool is_version(std::string_view text) {
  return text.size() == 8 && text.starts_with("HTTP/1.") && std::isdigit(text.back()) != 0;
}

int http_status_of(std::string_view method, std::string_view target, std::string_view version) {
  if (method.empty() || target.empty() || !is_version(version)) return 400;
  if (target.substr(0, target.find('?')) != kPath) return 404;
  return method == "GET" || method == "HEAD" ? 200 : 405;
}

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Bad Request";
  }
}

}  // namespace

std::optional<HttpRequest> parse_http_request(std::string_view bytes) {
  const auto end = bytes.find("\r\n\r\n");
  if (end == bytes.npos) {
    if (bytes.size() <= kMaxHttpRequest) return std::nullopt;
    return HttpRequest{.status = 431};
  }
  if (end > kMaxHttpRequest) return HttpRequest{.status = 431};
  std::string_view head = bytes.substr(0, end);
  std::string_view line = take_until(head, "\r\n");
  const std::string_view method = take_until(line, " ");
  const std::string_view target = take_until(line, " ");
  HttpRequest request{.status = http_status_of(method, target, line), .head = method == "HEAD"};
  while (!head.empty()) {
    std::string_view value = take_until(head, "\r\n");
    const std::string_view name = take_until(value, ":");
    if (equal_words(name, "accept") && value.find("application/openmetrics-text") != value.npos) {
      request.openmetrics = true;
    }
  }
  return request;
}

std::string http_answer(const HttpRequest& request, std::string_view content_type,
                        std::string_view body) {
  const std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
      request.status, reason(request.status), content_type, body.size(),
      request.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  return request.head ? text : text + std::string(body);
}

}  // namespace dlaunch

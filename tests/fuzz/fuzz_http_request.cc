#include "fuzz.h"
#include "launcher/lead/metrics/http_request.h"

static int fuzz_http_request(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view text = fuzz_text(data, size);
  const auto request = parse_http_request(text);
  // More bytes do not change a request that is complete, and too many end one that is not.
  if (request) {
    const auto longer = parse_http_request(std::string(text) + "x");
    if (!longer || longer->status != request->status) __builtin_trap();
  } else if (text.size() > kMaxHttpRequest) {
    __builtin_trap();
  }
  if (!request) return -1;
  if (http_answer(*request, "text/plain", "x").empty()) __builtin_trap();
  return 0;
}

static const FuzzTarget http_request_target("http_request", fuzz_http_request);

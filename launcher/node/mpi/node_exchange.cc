#include "launcher/node/mpi/node_exchange.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/codec.h"

namespace dlaunch {
namespace {

constexpr Duration kStoreTime = std::chrono::seconds(5);  // to answer
// After this time a node that waits for another checks whether that still makes sense. It checks
// seldom if it waits for long: many nodes may wait, and the store answers them all.
constexpr Duration kSlice = std::chrono::milliseconds(50);
constexpr Duration kLongSlice = std::chrono::milliseconds(200);
// Limit of a value in the store; a longer text becomes several values.
constexpr std::size_t kStoredPiece = kMaxValueBytes / 2;

std::string prefix_of(const std::string& key, int node) { return fmt::format("{}{}/", key, node); }

std::string key_of(const std::string& prefix, std::size_t piece) {
  return prefix + std::to_string(piece);
}

}  // namespace

Result<std::vector<std::string>> NodeExchange::run(const Request& request,
                                                   const std::function<bool(int node)>& over) {
  if (auto ok = reach_store(request.store_url); !ok) return ok.error();
  if (auto ok = tell(prefix_of(request.key, request.node), request.text); !ok) return ok.error();
  std::vector<std::string> others;
  for (const int node : request.others) {
    auto text = hear(prefix_of(request.key, node), [&] { return over(node); });
    if (!text) return text.error();
    others.push_back(std::move(*text));
  }
  return others;
}

void NodeExchange::forget(const std::string& key, int node) { forget(prefix_of(key, node)); }

void NodeExchange::forget(const std::string& prefix) {
  if (store_) (void)store_->delete_prefix(prefix, steady_now() + kStoreTime);
}

// The first piece has the number of pieces.
Result<void> NodeExchange::tell(const std::string& prefix, const std::string& text) {
  const auto last = steady_now() + kStoreTime;
  const std::size_t pieces =
      std::max<std::size_t>(1, (text.size() + kStoredPiece - 1) / kStoredPiece);
  for (std::size_t i = 0; i < pieces; ++i) {
    Writer out;
    if (i == 0) out.put(static_cast<std::uint32_t>(pieces));
    out.put_raw(std::string_view(text).substr(i * kStoredPiece, kStoredPiece));
    if (auto ok = store_->set(key_of(prefix, i), out.bytes(), last); !ok) return ok;
  }
  return {};
}

Result<std::string> NodeExchange::hear(const std::string& prefix, const Over& over) {
  std::string text;
  std::uint32_t pieces = 1;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    auto value = await(key_of(prefix, i), over);
    if (!value) return value;
    Reader in(*value);
    if (i == 0) pieces = in.get<std::uint32_t>();
    if (!in.ok()) return Error{.code = Errc::protocol, .what = "another node sent malformed data"};
    text += in.get_raw(in.left());
  }
  return text;
}

Result<std::string> NodeExchange::await(const std::string& key, const Over& over) {
  for (Duration slice = kSlice;; slice = std::min(2 * slice, kLongSlice)) {
    auto value = store_->get(key, steady_now() + slice);
    if (value || value.error().code != Errc::timeout) return value;
    if (over()) return Error{.code = Errc::aborted, .what = "the round is over"};
  }
}

Result<void> NodeExchange::reach_store(const std::string& url) {
  if (store_ && url == store_url_) return {};
  auto opened = open_store(url, options_, steady_now() + kStoreTime);
  if (!opened) return opened.error();
  store_ = std::move(*opened);
  store_url_ = url;
  return {};
}

}  // namespace dlaunch

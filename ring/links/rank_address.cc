#include "ring/links/rank_address.h"

#include <fmt/format.h>

#include "base/codec.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxAddressText = 256, kMaxUnixName = 100;

}  // namespace

std::string encode(const RankAddress& address) {
  Writer out;
  out.put_string(address.who);
  out.put(static_cast<std::int32_t>(address.ranks));
  out.put_string(address.plan);
  out.put(static_cast<std::uint8_t>(address.links));
  out.put_string(address.instance);
  out.put_string(address.unix_name);
  out.put_string(address.tcp.host);
  out.put(address.tcp.port);
  return out.take();
}

Result<RankAddress> decode_rank_address(std::string_view bytes) {
  Reader in(bytes);
  RankAddress address;
  address.who = in.get_string(kMaxAddressText);
  address.ranks = in.get<std::int32_t>();
  address.plan = in.get_string(kMaxAddressText);
  address.links = static_cast<LinkChoice>(in.get<std::uint8_t>());
  address.instance = in.get_string(kMaxUnixName);
  address.unix_name = in.get_string(kMaxUnixName);
  address.tcp.host = in.get_string(kMaxAddressText);
  address.tcp.port = in.get<std::uint16_t>();
  if (in.done() && address.links <= LinkChoice::few) return address;
  return Error{.code = Errc::protocol, .what = "a rank's address is malformed"};
}

Result<void> check_common(const RankAddress& own, const RankAddress& other, int other_rank) {
  const auto differ = [&](std::string_view what, std::string_view mine, std::string_view theirs) {
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("init: {} and {} have different {}: '{}' and '{}'", own.who,
                                     other.who, what, mine, theirs),
                 .rank = other_rank};
  };
  if (other.ranks != own.ranks) {
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("init: {} is one of {} ranks, {} is one of {}", own.who,
                                     own.ranks, other.who, other.ranks),
                 .rank = other_rank};
  }
  if (other.plan != own.plan) return differ(contract::kPlan, own.plan, other.plan);
  if (other.links == own.links) return {};
  return differ(contract::kLinks, word_of(kLinkWords, own.links), word_of(kLinkWords, other.links));
}

}  // namespace dlaunch

#include "ring/links/rank_address.h"

#include <fmt/format.h>

#include "base/codec.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxAddressText = 256, kMaxUnixName = 100;

}  // namespace

std::string encode(const RankAddress& address) {
  Writer out;
  out.put_string(address.at.who);
  out.put(static_cast<std::int32_t>(address.ranks));
  out.put_string(address.plan);
  out.put(static_cast<std::uint8_t>(address.links));
  out.put(static_cast<std::uint8_t>(address.verify));
  out.put_string(address.at.instance);
  out.put_string(address.at.unix_name);
  out.put_string(address.at.tcp.host);
  out.put(address.at.tcp.port);
  return out.take();
}

Result<RankAddress> decode_rank_address(std::string_view bytes) {
  Reader in(bytes);
  RankAddress address;
  address.at.who = in.get_string(kMaxAddressText);
  address.ranks = in.get<std::int32_t>();
  address.plan = in.get_string(kMaxAddressText);
  address.links = static_cast<LinkChoice>(in.get<std::uint8_t>());
  address.verify = static_cast<VerifyMode>(in.get<std::uint8_t>());
  address.at.instance = in.get_string(kMaxUnixName);
  address.at.unix_name = in.get_string(kMaxUnixName);
  address.at.tcp.host = in.get_string(kMaxAddressText);
  address.at.tcp.port = in.get<std::uint16_t>();
  const bool known = address.links <= LinkChoice::few && address.verify <= VerifyMode::full;
  if (in.done() && known) return address;
  return Error{.code = Errc::protocol, .what = "a rank's address is malformed"};
}

Result<void> check_common(const RankAddress& own, const RankAddress& other, int other_rank) {
  const auto differ = [&](std::string_view what, std::string_view mine, std::string_view theirs) {
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("init: {} and {} have different {}: '{}' and '{}'", own.at.who,
                                     other.at.who, what, mine, theirs),
                 .rank = other_rank};
  };
  if (other.ranks != own.ranks) {
    return Error{.code = Errc::mismatch,
                 .what = fmt::format("init: {} is one of {} ranks, {} is one of {}", own.at.who,
                                     own.ranks, other.at.who, other.ranks),
                 .rank = other_rank};
  }
  if (other.plan != own.plan) return differ(contract::kPlan, own.plan, other.plan);
  if (other.links != own.links) {
    return differ(contract::kLinks, word_of(kLinkWords, own.links),
                  word_of(kLinkWords, other.links));
  }
  if (other.verify == own.verify) return {};
  return differ(contract::kVerify, word_of(kVerifyWords, own.verify),
                word_of(kVerifyWords, other.verify));
}

}  // namespace dlaunch

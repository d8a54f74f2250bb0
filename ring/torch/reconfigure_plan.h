// The decisions of c10d's recovery API: handles of members, their ranks in the communicator that
// they make, and where they meet. Pure: no PyTorch, no sockets.
//
// A handle names a port that its process holds, a secret that proves knowledge of the handle, and
// the group. The member of rank 0 serves the bootstrap at its port, under a name that only calls
// with the same number and the same handles use.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/fnv1a.h"

namespace dlring_torch {

// As text "dlring:4711@host:2:SECRET:29500:10.0.0.7".
struct Handle {
  std::string who;          // for people: "4711@host", the process
  std::uint64_t group = 0;  // among those of the process
  std::string secret;
  int port = 0;
  std::string address;
};

inline constexpr std::string_view kHandleStart = "dlring:";
inline constexpr std::string_view kHexLetters = "0123456789abcdef";
// For numeric addresses, also of one link: "fe80::1%eth0".
inline constexpr std::string_view kAddressLetters =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.:%-_";

inline std::string text_of(const Handle& handle) {
  return std::string(kHandleStart) + handle.who + ":" + std::to_string(handle.group) + ":" +
         handle.secret + ":" + std::to_string(handle.port) + ":" + handle.address;
}

// Takes off the text before the next ":"; nothing if there is no ":".
inline std::optional<std::string_view> next_field(std::string_view& text) {
  const auto end = text.find(':');
  if (end == std::string_view::npos) return {};
  const auto field = text.substr(0, end);
  text.remove_prefix(end + 1);
  return field;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end;
}

inline bool consists_of(std::string_view text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

// Nothing: the text is not a handle of dlring.
inline std::optional<Handle> parse_handle(std::string_view text) {
  if (text.size() > 1024 || !text.starts_with(kHandleStart)) return {};
  text.remove_prefix(kHandleStart.size());
  const auto who = next_field(text), group = next_field(text), secret = next_field(text),
             port = next_field(text);
  Handle handle;
  if (!port || !read_number(*group, handle.group) || !read_number(*port, handle.port)) return {};
  const bool has_secret = secret->size() >= 32 && consists_of(*secret, kHexLetters);
  const bool has_place =
      handle.port >= 1 && handle.port <= 65535 && consists_of(text, kAddressLetters);
  if (who->empty() || !has_secret || !has_place) return {};
  handle.who = *who;
  handle.secret = *secret;
  handle.address = text;
  return handle;
}

struct ReconfigurePlan {
  int rank = 0;
  int size = 1;
  std::string url;      // where dl_init() meets the others
  std::string secret;   // the secret that all of them prove
  std::string members;  // for messages: "0 is 4711@a, 1 is 4712@b"
};

// The same on every machine and in every version.
inline std::uint64_t digest_of(std::int64_t uuid, const std::vector<std::string>& handles) {
  dlaunch::Fnv1a digest;
  digest.add(std::to_string(uuid) + "\n");
  for (const auto& handle : handles) digest.add(handle + "\n");
  return digest.value();
}

inline std::string hex_of(std::uint64_t number) {
  char text[17] = "";
  const auto end = std::to_chars(text, text + 16, number, 16);
  return {text, end.ptr};
}

[[noreturn]] inline void refuse_reconfigure(const std::string& why) {
  throw std::invalid_argument("dlring: reconfigure: " + why);
}

inline std::string describe_members(const std::vector<Handle>& members) {
  constexpr std::size_t kMost = 16;
  std::string all;
  for (std::size_t i = 0; i < std::min(members.size(), kMost); ++i) {
    all += (i == 0 ? "" : ", ") + std::to_string(i) + " is " + members[i].who;
  }
  if (members.size() > kMost) all += " and so on up to " + std::to_string(members.size() - 1);
  return all;
}

// handles: by rank. Throws std::invalid_argument.
inline ReconfigurePlan plan_reconfigure(const std::string& own, std::int64_t uuid,
                                        const std::vector<std::string>& handles) {
  if (handles.empty()) refuse_reconfigure("no handle was given");
  std::vector<Handle> members;
  for (const auto& text : handles) {
    const auto handle = parse_handle(text);
    if (!handle) refuse_reconfigure("'" + text.substr(0, 100) + "' is no handle of dlring");
    members.push_back(*handle);
  }
  auto sorted = handles;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    refuse_reconfigure("the handle of " + parse_handle(*twice)->who + " was given twice");
  }
  const auto place = std::find(handles.begin(), handles.end(), own);
  if (place == handles.end()) refuse_reconfigure("the handle of this group itself is missing");
  const Handle& first = members.front();
  const bool v6 = first.address.find(':') != std::string::npos;
  ReconfigurePlan plan;
  plan.rank = static_cast<int>(place - handles.begin());
  plan.size = static_cast<int>(handles.size());
  plan.url = "tcp://" + (v6 ? "[" + first.address + "]" : first.address) + ":" +
             std::to_string(first.port) + "/" + hex_of(digest_of(uuid, handles));
  plan.secret = first.secret;
  plan.members = describe_members(members);
  return plan;
}

}  // namespace dlring_torch

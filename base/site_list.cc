#include "base/site_list.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLongestName = 64;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
         });
}

Result<void> add_site(SiteList& sites, std::string_view name, std::string_view address) {
  if (!is_name(name)) {
    return usage_error(
        fmt::format("'{}' is not a name of 1 to {} letters, digits and -_.", name, kLongestName));
  }
  auto endpoint = parse_endpoint(address);
  if (!endpoint) return usage_error(fmt::format("site {}: {}", name, endpoint.error().what));
  if (endpoint->port == 0) return usage_error(fmt::format("site {}: its port cannot be 0", name));
  for (const SiteAddress& other : sites) {
    if (other.name == name) return usage_error(fmt::format("site {} is there twice", name));
    if (other.endpoint == *endpoint) {
      return usage_error(fmt::format("sites {} and {} have the same address {}", other.name, name,
                                     to_string(*endpoint)));
    }
  }
  if (sites.size() == kLongestSiteList)
    return usage_error(fmt::format("there are more than {} sites", kLongestSiteList));
  sites.push_back({std::string(name), std::move(*endpoint)});
  return {};
}

Result<SiteList> complete(SiteList sites) {
  if (sites.size() < 2) return usage_error("there are fewer than two sites");
  return sites;
}

}  // namespace

Result<SiteList> parse_site_file(std::string_view text) {
  SiteList sites;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, std::min(text.find('#'), end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
    const auto words = split_words(line, ' ');
    if (words.empty()) continue;
    const auto fault = [&](const std::string& what) {
      return usage_error(fmt::format("line {}: {}", number, what));
    };
    if (words.size() != 2) return fault("a line has a NAME and a HOST:PORT");
    if (auto ok = add_site(sites, words[0], words[1]); !ok) return fault(ok.error().what);
  }
  return complete(std::move(sites));
}

Result<SiteList> parse_site_list(std::string_view text) {
  SiteList sites;
  for (const std::string_view item : split_words(text, ',')) {
    const auto equals = item.find('=');
    if (equals == item.npos) return usage_error(fmt::format("'{}' is not NAME=HOST:PORT", item));
    if (auto ok = add_site(sites, item.substr(0, equals), item.substr(equals + 1)); !ok) {
      return ok.error();
    }
  }
  return complete(std::move(sites));
}

std::string to_string(const SiteList& sites) {
  std::string text;
  for (const auto& [name, endpoint] : sites) {
    text += (text.empty() ? "" : ",") + name + "=" + to_string(endpoint);
  }
  return text;
}

int index_of(const SiteList& sites, std::string_view name) {
  const auto found =
      std::find_if(sites.begin(), sites.end(), [&](const auto& site) { return site.name == name; });
  return found == sites.end() ? -1 : static_cast<int>(found - sites.begin());
}

std::string names_of(const SiteList& sites) {
  std::string text;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == sites.size() ? " and " : ", ") + sites[i].name;
  }
  return text;
}

}  // namespace dlaunch

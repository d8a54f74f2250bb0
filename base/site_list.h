// The sites of a training: their names, and the addresses of their endpoints. Each site has the
// same list; a site's index is its place there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"

namespace dlaunch {

inline constexpr std::size_t kLongestSiteList = 16;

struct SiteAddress {
  std::string name;
  Endpoint endpoint;
  bool operator==(const SiteAddress&) const = default;
};
using SiteList = std::vector<SiteAddress>;

// A file with a line "NAME HOST:PORT" for each site; # begins a comment. An error names the line.
Result<SiteList> parse_site_file(std::string_view text);
// "NAME=HOST:PORT,NAME=HOST:PORT".
Result<SiteList> parse_site_list(std::string_view text);
std::string to_string(const SiteList& sites);

// The site's index; -1: there is none of that name.
int index_of(const SiteList& sites, std::string_view name);
// "alps, lake and sea"
std::string names_of(const SiteList& sites);

}  // namespace dlaunch

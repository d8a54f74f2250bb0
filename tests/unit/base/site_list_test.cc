#include "base/site_list.h"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

std::string from_file(const std::string& text) {
  auto sites = parse_site_file(text);
  return sites ? to_string(*sites) : sites.error().what;
}

std::string from_list(const std::string& text) {
  auto sites = parse_site_list(text);
  return sites ? to_string(*sites) : sites.error().what;
}

}  // namespace

TEST_CASE("a file of sites has a name and an address a line, and comments") {
  CHECK(from_file("# our sites\nalps 10.0.0.1:7000\n\n sea\t[fd00::7]:7000 # by ship\r\n") ==
        "alps=10.0.0.1:7000,sea=[fd00::7]:7000");
  CHECK(from_list("alps=10.0.0.1:7000,sea=[fd00::7]:7000") ==
        "alps=10.0.0.1:7000,sea=[fd00::7]:7000");
}

TEST_CASE("an error about a file of sites names the line") {
  CHECK(from_file("a h:1\nb\n") == "line 2: a line has a NAME and a HOST:PORT");
  CHECK(from_file("a h:1\nb h\n").starts_with("line 2: site b: "));
  CHECK(from_file("a h:1\nb h:0\n") == "line 2: site b: its port cannot be 0");
  CHECK(from_file("a h:1\na h:2\n") == "line 2: site a is there twice");
  CHECK(from_file("a h:1\nb h:1\n") == "line 2: sites a and b have the same address h:1");
  CHECK(from_file("a,b h:1\nb h:1\n") ==
        "line 1: 'a,b' is not a name of 1 to 64 letters, digits and -_.");
  CHECK(from_file("# none\n") == "there are fewer than two sites");
  CHECK(from_file("a h:1") == "there are fewer than two sites");
  std::string many;
  for (int i = 0; i < 17; ++i)
    many += "s" + std::to_string(i) + " h:" + std::to_string(i + 1) + "\n";
  CHECK(from_file(many) == "line 17: there are more than 16 sites");
  CHECK(from_list("a=h:1,b") == "'b' is not NAME=HOST:PORT");
}

TEST_CASE("a site has its place in the list") {
  const SiteList sites = *parse_site_list("a=h:1,b=h:2,c=h:3");
  CHECK(index_of(sites, "b") == 1);
  CHECK(index_of(sites, "d") == -1);
  CHECK(names_of(sites) == "a, b and c");
}

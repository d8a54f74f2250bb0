// Finds the libpmix of this host by its files.
#include "launcher/node/mpi/pmix_finder.h"

#include <doctest/doctest.h>

#include "launcher/node/mpi/pmix_library.h"

using namespace dlaunch;

TEST_CASE("pmix finder: the library that is found is the one that the loader loads") {
  const auto found = find_pmix();
  const auto loaded = PmixLibrary::load();
  REQUIRE(found.has_value() == loaded.has_value());
  if (!found) {
    MESSAGE("this host has no libpmix");
    return;
  }
  CHECK(found->text == loaded->version.text);
  CHECK(found->major == loaded->version.major);
}

TEST_CASE("pmix finder: files that are no libpmix have no version") {
  CHECK(pmix_version_of_file("/bin/sh").major == 0);
  CHECK(pmix_version_of_file("/etc/passwd").major == 0);
  CHECK(pmix_version_of_file("/").major == 0);
  CHECK(pmix_version_of_file("/nonexistent").major == 0);
}

TEST_CASE("pmix finder: the loader's cache has the whole path") {
  using namespace std::string_view_literals;
  const auto cache = "glibc\1\0libpmix.so\0/opt/lib/libpmix.so.2\0/lib/libpmix.so.20\0"sv;
  CHECK(path_in_loader_cache(cache, "libpmix.so.2") == "/opt/lib/libpmix.so.2");
  CHECK(path_in_loader_cache(cache, "libpmix.so").empty());  // a word that is no path
  CHECK(path_in_loader_cache(cache, "libpmix.so.3").empty());
  CHECK(path_in_loader_cache("", "libpmix.so.2").empty());
  CHECK(path_in_loader_cache("/libpmix.so.2"sv, "libpmix.so.2").empty());  // cut off
}

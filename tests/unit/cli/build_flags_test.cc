#include "cli/build_flags.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "base/installed_folders.h"
#include "tests/unit/temp_folder.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

// An installation with nothing in it but what is looked for.
struct Installation {
  explicit Installation(const std::string& name) : prefix(folder.path / name), bin(prefix / "bin") {
    include = (bin / DLAUNCH_INCLUDE_FROM_BIN).lexically_normal();
    lib = (bin / DLAUNCH_LIB_FROM_BIN).lexically_normal();
    fs::create_directories(include / "dlaunch");
    fs::create_directories(lib);
    for (const char* header : {"ring.h", "elastic.h"}) std::ofstream(include / "dlaunch" / header);
    for (const char* library : {"libdlring.so", "libdlelastic.so"}) std::ofstream(lib / library);
  }

  std::string ask(const std::vector<std::string>& words) const {
    const auto options = read_options(words);
    REQUIRE(options);
    const auto flags = build_flags(*options, bin / "dlaunch");
    return flags ? *flags : "error: " + flags.error().what;
  }

  TempFolder folder;
  fs::path prefix, bin, include, lib;
};

TEST_CASE("build flags name the folders of the installation that dlaunch belongs to") {
  const Installation here("opt");
  const std::string lib = here.lib, include = "-I" + here.include.string();
  CHECK(here.ask({"--cflags"}) == include);
  CHECK(here.ask({"--libs"}) == "-L" + lib + " -Wl,-rpath," + lib + " -ldlring");
  CHECK(here.ask({"--libs", "--cflags"}) ==
        include + " -L" + lib + " -Wl,-rpath," + lib + " -ldlring");
  CHECK(here.ask({"--cflags", "--libs", "dlelastic"}) ==
        include + " -L" + lib + " -Wl,-rpath," + lib + " -ldlelastic -ldlring");
}

TEST_CASE("build flags escape blanks in the path, as pkg-config does") {
  const Installation here("my programs");
  CHECK(here.ask({"--cflags"}).find("/my\\ programs/") != std::string::npos);
  CHECK(here.ask({"--libs"}).find("/my programs/") == std::string::npos);
}

TEST_CASE("build flags are refused for another library, and without an installation") {
  const Installation here("opt");
  CHECK(here.ask({"--libs", "dltrain"}) ==
        "error: --libs takes the name of one library, dlring or dlelastic, not 'dltrain'");
  CHECK(here.ask({"--cflags", "dlring", "dlelastic"}).starts_with("error: --cflags takes"));
  fs::remove(here.lib / "libdlring.so");
  CHECK(here.ask({"--libs"})
            .starts_with("error: there is no " + here.lib.string() + "/libdlring.so"));
  CHECK(here.ask({"--cflags"}).starts_with("-I"));
}

}  // namespace
}  // namespace dlaunch

#include "launcher/process/installed_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

// folder/file, which only the user may write.
struct Installed {
  Installed() {
    std::filesystem::create_directory(folder);
    std::ofstream(file) << "library";
    set(folder, 0755);
    set(file, 0644);
  }
  static void set(const std::string& path, mode_t mode) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
  }
  bool is_safe() const { return only_owners_may_write(file, {0, ::geteuid()}); }

  TempFolder temp;
  const std::string folder = std::filesystem::canonical(temp.path).string() + "/folder";
  const std::string file = folder + "/file";
};

}  // namespace

TEST_CASE("installed file: others may write neither to it nor to its folders") {
  Installed at;
  CHECK(at.is_safe());
  Installed::set(at.file, 0666);
  CHECK_FALSE(at.is_safe());
  Installed::set(at.file, 0644);
  Installed::set(at.folder, 0777);
  CHECK_FALSE(at.is_safe());
  Installed::set(at.folder, 01777);  // others cannot replace the file there
  CHECK(at.is_safe());
  Installed::set(at.folder, 0755);
  Installed::set(at.temp.path, 0777);
  CHECK_FALSE(at.is_safe());
}

TEST_CASE("installed file: it and its folders belong to those that are trusted") {
  const Installed at;
  CHECK_FALSE(only_owners_may_write(at.file, {::geteuid() + 1}));
  if (::geteuid() != 0) return;
  // A stranger's entry in a sticky folder.
  Installed::set(at.temp.path, 01777);
  REQUIRE(::chown(at.folder.c_str(), 4711, 0) == 0);
  CHECK_FALSE(at.is_safe());
  CHECK(only_owners_may_write(at.file, {0, 4711}));
}

TEST_CASE("installed file: a group other than the user's own may not write") {
  const Installed at;
  Installed::set(at.file, 0664);
  CHECK(at.is_safe());
  if (::geteuid() != 0) return;
  REQUIRE(::chown(at.file.c_str(), 0, 4711) == 0);
  CHECK_FALSE(at.is_safe());
}

TEST_CASE("installed file: a link or a missing file is not followed") {
  const Installed at;
  std::filesystem::create_symlink(at.file, at.folder + "/link");
  CHECK_FALSE(only_owners_may_write(at.folder + "/link", {0, ::geteuid()}));
  CHECK_FALSE(only_owners_may_write(at.folder + "/none", {0, ::geteuid()}));
}

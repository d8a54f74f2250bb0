#include "launcher/process/job_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "launcher/node/workers/worker_evidence.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
namespace fs = std::filesystem;

namespace {

mode_t mode_of(const fs::path& path) {
  struct stat st {};
  REQUIRE(::stat(path.c_str(), &st) == 0);
  return st.st_mode & 07777;
}

}  // namespace

TEST_CASE("a job's folder is private, holds its secret, and is gone when removed") {
  const TempFolder tmp;
  auto dir = JobDir::make(tmp.path);
  REQUIRE(dir);
  CHECK(mode_of(dir->path()) == 0700);
  const auto made = Secret::random();
  REQUIRE(made);
  const Secret& secret = *made;
  // A program that clears old files out of /tmp asks for the folder's lock first.
  const UniqueFd cleaner(::open(dir->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(::flock(cleaner.get(), LOCK_EX | LOCK_NB) != 0);
  auto file = dir->write_secret(secret);
  REQUIRE(file);
  CHECK(mode_of(*file) == 0600);
  CHECK(Secret::load(*file)->bytes() == secret.bytes());
  auto round = dir->make_round_dir(1);
  REQUIRE(round);
  CHECK(mode_of(*round) == 0700);
  CHECK_FALSE(dir->make_round_dir(1));
  std::ofstream(fs::path(*round) / "error.0.json") << "{}";
  dir->remove();
  CHECK(fs::is_empty(tmp.path));
}

TEST_CASE("the folder for jobs does not depend on the current folder") {
  const char* before = std::getenv("TMPDIR");
  const std::string restored = before != nullptr ? before : "";
  for (const auto& [set, found] :
       {std::pair("near", fs::current_path() / "near"), {"/far", "/far"}, {"", "/tmp"}}) {
    ::setenv("TMPDIR", set, 1);
    CHECK(fs::path(folder_for_jobs()) == found);
  }
  before != nullptr ? ::setenv("TMPDIR", restored.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_CASE("a new job removes the folders of dead jobs, and no others") {
  const TempFolder tmp;
  auto alive = JobDir::make(tmp.path);
  REQUIRE(alive);
  std::string dead;
  {
    auto dir = JobDir::make(tmp.path);
    REQUIRE(dir);
    dead = dir->path();
    REQUIRE(dir->write_secret(*Secret::random()));
    REQUIRE(dir->write_secret(*Secret::random()));  // a leader that became a follower
  }                                                 // its lock is free, but nobody removed it
  fs::create_directory(tmp.path / "dlaunch-job-no-lock");  // perhaps being made at this moment
  fs::create_directory(tmp.path / "other");
  std::ofstream(tmp.path / "other" / "lock");
  fs::create_directory_symlink(tmp.path / "other", tmp.path / "dlaunch-job-link");

  auto next = JobDir::make(tmp.path);
  REQUIRE(next);
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(alive->path()));
  CHECK(fs::exists(tmp.path / "dlaunch-job-no-lock"));
  CHECK(fs::exists(tmp.path / "other" / "lock"));
}

TEST_CASE("the folders of running jobs are found, and no others") {
  const TempFolder tmp;
  CHECK(running_job_dirs(tmp.path).empty());
  auto one = JobDir::make(tmp.path);
  auto other = JobDir::make(tmp.path);
  REQUIRE((one && other));
  std::string dead;
  {
    auto dir = JobDir::make(tmp.path);
    REQUIRE(dir);
    dead = dir->path();
  }
  fs::create_directory(tmp.path / "dlaunch-job-no-lock");
  std::vector<std::string> expected = {one->path(), other->path()};
  std::sort(expected.begin(), expected.end());
  CHECK(running_job_dirs(tmp.path) == expected);
  CHECK(fs::exists(dead));  // only looked at
  CHECK(running_job_dirs("/no/such/place").empty());
}

TEST_CASE("an error names the place in which no folder can be made") {
  const auto dir = JobDir::make("/no/such/place");
  REQUIRE_FALSE(dir);
  CHECK(dir.error().what.find("/no/such/place") != std::string::npos);
  CHECK(dir.error().what.find("TMPDIR") != std::string::npos);
}

TEST_CASE("the error file of a failed worker is read, unless reading would block") {
  const TempFolder folder;
  std::ofstream(folder.path / "error.8.json") << "{\"message\": \"m\"}";
  std::ofstream(folder.path / "peer_lost.3") << "11\nrank 11 left\n";
  WorkerEnd end;
  note_left_files(
      end, {.rank = 3, .round_dir = folder.path, .error_file = folder.path / "error.8.json"});
  CHECK(end.error_file == "{\"message\": \"m\"}");
  CHECK(end.peer_lost == 11);

  WorkerEnd other;
  REQUIRE(::mkfifo((folder.path / "error.9.json").c_str(), 0600) == 0);
  std::ofstream(folder.path / "peer_lost.4") << "not a number";
  note_left_files(
      other, {.rank = 4, .round_dir = folder.path, .error_file = folder.path / "error.9.json"});
  CHECK(other.error_file.empty());
  CHECK(other.peer_lost == -1);

  std::ofstream(folder.path / "corrupt.5") << "5\nall_reduce #7: rank 5 holds other results\n";
  std::ofstream(folder.path / "corrupt.6") << "-1\nranks 6-7 hold different results\n";
  std::ofstream(folder.path / "corrupt.7") << "7";  // torn
  WorkerEnd corrupt{.rank = 5}, perhaps{.rank = 6}, torn{.rank = 7};
  for (WorkerEnd* const each : {&corrupt, &perhaps, &torn}) {
    note_corruption(*each, {.rank = each->rank, .round_dir = folder.path});
  }
  CHECK(corrupt.is_corrupt());
  CHECK(has_failed(corrupt));  // although its exit code is 0
  CHECK(corrupt.corrupt == "all_reduce #7: rank 5 holds other results");
  CHECK_FALSE(perhaps.is_corrupt());
  CHECK(perhaps.corrupt == "ranks 6-7 hold different results");
  CHECK(has_failed(perhaps));
  CHECK(torn.corrupt.empty());
  CHECK_FALSE(has_failed(torn));
  CHECK_FALSE(corrupt_note({.rank = 7, .round_dir = folder.path}));
  CHECK_FALSE(corrupt_note({.rank = 8, .round_dir = folder.path}));
  CHECK_FALSE(corrupt_note({.rank = 5}));
  REQUIRE(corrupt_note({.rank = 6, .round_dir = folder.path}));
  CHECK(corrupt_note({.rank = 6, .round_dir = folder.path})->rank == -1);

  fs::create_symlink("/etc/passwd", folder.path / "link");
  CHECK(read_left_file(folder.path / "link").empty());
  std::ofstream(folder.path / "huge") << std::string(3 << 20, 'x');
  CHECK(read_left_file(folder.path / "huge").size() == std::size_t{1} << 20);
}

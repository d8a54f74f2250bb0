#include "elastic/state/snapshot_file.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "elastic/state/plan.h"
#include "thread_world.h"

using namespace dlaunch;
namespace fs = std::filesystem;

namespace {

std::vector<std::byte> content(std::size_t bytes, unsigned seed = 1) {
  std::vector<std::byte> all(bytes);
  for (auto& byte : all) byte = static_cast<std::byte>(seed = seed * 1664525u + 1013904223u);
  return all;
}

Snapshot committed(std::uint64_t number, ObjectId object = kReplicated) {
  return {.path = {},
          .id = {{1, number}, 1},
          .world = 2,
          .object = object,
          .bytes = 0,
          .description = "replicated 'w' (8 bytes)\n",
          .table = {}};
}

int files_in(const std::string& folder) {
  int n = 0;
  for ([[maybe_unused]] const auto& file : fs::directory_iterator(folder)) ++n;
  return n;
}

// Changes one byte.
void spoil(const std::string& path, long at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at, at < 0 ? std::ios::end : std::ios::beg);
  const auto place = file.tellg();
  const char was = static_cast<char>(file.get());
  file.seekp(place);
  file.put(static_cast<char>(was ^ 4));
}

}  // namespace

TEST_CASE("snapshot file: it is read as it was written") {
  const TempFolder folder;
  const auto bytes = content(kPieceBytes + 1000);
  REQUIRE(make_snapshot_folder(folder.path.string() + "/a/b"));
  REQUIRE(write_snapshot(folder.path.string() + "/a/b", committed(7, shard_of(1)), bytes));
  const auto list = list_snapshots(folder.path.string() + "/a/b");
  REQUIRE(list);
  REQUIRE(list->intact.size() == 1);
  const Snapshot& s = list->intact.front();
  CHECK(s.path.ends_with("/commit-1-7.shard-1-of-2.dlstate"));
  CHECK(s.id == CopyId{{1, 7}, 1});
  CHECK(s.object == shard_of(1));
  CHECK(s.description == committed(7).description);
  auto back = content(bytes.size(), 2);
  REQUIRE(read_snapshot(s, back));
  CHECK(back == bytes);
  CHECK(list_snapshots(folder.path.string() + "/none")->intact.empty());
}

TEST_CASE("snapshot file: any wrong byte, and any end that is too early, is found") {
  const TempFolder folder;
  const auto bytes = content(300);
  REQUIRE(write_snapshot(folder.path.string(), committed(7), bytes));
  const std::string path = folder.path.string() + "/commit-1-7.replicated.dlstate";
  const auto size = static_cast<long>(fs::file_size(path));
  std::vector<std::byte> back(300);
  const auto intact = [&] {
    const auto list = list_snapshots(folder.path.string());
    REQUIRE(list);
    REQUIRE(list->intact.size() + list->damaged.size() == 1);
    return !list->intact.empty() && read_snapshot(list->intact.front(), back).has_value();
  };
  for (long at = 0; at < size; ++at) {
    spoil(path, at);
    CAPTURE(at);
    CHECK_FALSE(intact());
    spoil(path, at);
  }
  CHECK(intact());
  for (long left = size - 1; left >= 0; left -= 7) {
    fs::resize_file(path, static_cast<std::uintmax_t>(left));
    CHECK_FALSE(intact());
  }
}

TEST_CASE("snapshot file: the newest stay beside the one that is being written") {
  const TempFolder folder;
  for (const std::uint64_t number : {2, 4, 6, 8}) {
    for (const ObjectId object : {kReplicated, shard_of(0)}) {
      REQUIRE(write_snapshot(folder.path.string(), committed(number, object), content(10)));
    }
  }
  std::ofstream(folder.path.string() + "/commit-1-5.replicated.dlstate.new") << "half";
  std::ofstream(folder.path.string() + "/notes.txt") << "the user's";
  prune_snapshots(folder.path.string(), {1, 8}, {.number = 2, .complete = {{1, 6}, {1, 4}}});
  CHECK(list_snapshots(folder.path.string())->intact.size() == 6);  // 4, 6 and 8
  CHECK_FALSE(fs::exists(folder.path.string() + "/commit-1-2.replicated.dlstate"));
  CHECK_FALSE(fs::exists(folder.path.string() + "/commit-1-5.replicated.dlstate.new"));
  CHECK(fs::exists(folder.path.string() + "/notes.txt"));
}

TEST_CASE("snapshot file: an incomplete commit never takes the place of a complete one") {
  const auto kept = [](const SnapshotsToKeep& keep) {
    std::vector<std::uint64_t> numbers;
    for (const std::uint64_t number : {2, 4, 6, 8}) {
      if (keep.contains({1, number})) numbers.push_back(number);
    }
    return numbers;
  };
  using Numbers = std::vector<std::uint64_t>;
  // Of what another process has begun nothing is known.
  CHECK(kept({.number = 1}) == Numbers{2, 4, 6, 8});
  CHECK(kept({.number = 2, .complete = {{1, 6}}}) == Numbers{2, 4, 6, 8});
  CHECK(kept({.number = 1, .complete = {{1, 4}}}) == Numbers{4, 6, 8});
  // 6 and later ones are this process's.
  CHECK(kept({.number = 1, .complete = {{1, 4}}, .judged_from = {1, 6}}) == Numbers{4});
  CHECK(kept({.number = 2, .complete = {{1, 8}}, .judged_from = {1, 6}}) == Numbers{2, 4, 8});

  SnapshotsToKeep keep{.number = 2};
  for (const std::uint64_t number : {2, 4, 6, 6}) keep.add({1, number});
  CHECK(keep.complete == std::vector<Version>{{1, 6}, {1, 4}});
}

TEST_CASE("snapshot file: a failing disk leaves no file behind") {
  const TempFolder folder;
  // In a process of its own, for the limit holds for all of it.
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit small{4096, 4096};
    std::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) ::_exit(2);
    ::_exit(write_snapshot(folder.path.string(), committed(7), content(8192)) ? 1 : 0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK(status == 0);
  CHECK(files_in(folder.path.string()) == 0);
  CHECK(write_snapshot("/dev/null/there", committed(7), content(10)).error().code == Errc::io);
}

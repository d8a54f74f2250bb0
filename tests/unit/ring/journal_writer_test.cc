// The journal of a site on the disk.
#include "ring/sites/journal_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "base/log.h"
#include "base/unique_fd.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

const SiteMember kWriter{.site = 1, .incarnation = 7};

SharedBytes some_bytes(std::size_t size) { return std::make_shared<std::string>(size, 'x'); }

Merge written_merge(std::uint64_t number, std::uint64_t bytes, int sites = 1) {
  const MergeId id{1, number};
  Merge merge{.id = id, .members = {kWriter}, .contributions = {}, .order = {1}};
  for (int site = 1; site <= sites; ++site) {
    merge.contributions.push_back(
        {.member = {.site = site, .incarnation = 7}, .id = id, .bytes = bytes});
  }
  return merge;
}

JournalReplay replay_of(const std::filesystem::path& path) {
  static std::string kept;  // the records point into it
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  kept = bytes.str();
  return read_site_journal(kept);
}

}  // namespace

TEST_CASE("a journal goes on where the last writer's whole records end") {
  const TempFolder folder;
  const auto file = folder.path / "new/sea.journal";
  for (std::uint64_t life = 0; life < 2; ++life) {
    auto writer = JournalWriter::open((folder.path / "new").string(), "sea", {});
    REQUIRE(writer);
    (*writer)->start(kWriter, {"alps", "sea"});
    if (life == 0) (*writer)->snapshot({1, 0}, 5, some_bytes(100));
    (*writer)->merge(written_merge(life + 1, 10), 6 + life, {some_bytes(10)});
    writer->reset();
    std::ofstream(file, std::ios::app) << "half a record";
  }
  const JournalReplay replay = replay_of(file);
  CHECK(replay.torn);
  CHECK(replay.names == std::vector<std::string>{"alps", "sea"});
  REQUIRE(replay.snapshot);
  REQUIRE(replay.steps.size() == 2);
  CHECK(replay.steps[1].merge.hash == 7);
  CHECK(replay.steps[1].payloads[0].bytes.size() == 10);
}

TEST_CASE("a long journal begins a new file with a snapshot, and keeps the one before") {
  const TempFolder folder;
  auto writer = JournalWriter::open(folder.path.string(), "sea", {.growth = 1000});
  REQUIRE(writer);
  (*writer)->start(kWriter, {"alps", "sea"});
  (*writer)->snapshot({1, 0}, 5, some_bytes(100));
  int snapshots = 0;
  for (std::uint64_t number = 1; number <= 30; ++number) {
    (*writer)->merge(written_merge(number, 100), number, {some_bytes(100)});
    if (!(*writer)->wants_snapshot()) continue;
    (*writer)->snapshot({1, number}, number, some_bytes(100));
    ++snapshots;
  }
  writer->reset();
  CHECK(snapshots == 3);
  const JournalReplay last = replay_of(folder.path / "sea.journal");
  REQUIRE(last.snapshot);
  CHECK(last.snapshot->id.number + last.steps.size() == 30);
  const std::uint64_t from = last.snapshot->id.number;
  const JournalReplay before = replay_of(folder.path / "sea.journal.1");
  CHECK(before.snapshot->id.number + before.steps.size() == from);
  CHECK_FALSE(before.torn);
}

TEST_CASE("a journal does not grow without end over many short lives") {
  const TempFolder folder;
  for (std::uint64_t number = 1; number <= 30; ++number) {
    auto writer = JournalWriter::open(folder.path.string(), "sea", {.growth = 1000});
    REQUIRE(writer);
    (*writer)->start(kWriter, {"alps", "sea"});
    (*writer)->snapshot({1, number - 1}, number, some_bytes(100));
    (*writer)->merge(written_merge(number, 100), number + 1, {some_bytes(100)});
    writer->reset();
    // A life adds less than 1,000 bytes, with the heads of its records.
    CHECK(std::filesystem::file_size(folder.path / "sea.journal") < 2000);
  }
  const JournalReplay last = replay_of(folder.path / "sea.journal");
  CHECK(last.snapshot->id == MergeId{1, 29});
  CHECK(last.steps.size() == 1);
  CHECK_FALSE(replay_of(folder.path / "sea.journal.1").torn);
}

TEST_CASE("a full disk ends the journal with a warning") {
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path / "sea.journal");
  std::string said;
  set_log_sink([&](LogLevel, std::string_view line) { said += line; });
  auto writer = JournalWriter::open(folder.path.string(), "sea", {});
  REQUIRE(writer);
  (*writer)->start(kWriter, {"alps", "sea"});
  writer->reset();
  set_log_sink({});
  CHECK(said.find("goes on without its journal") != std::string::npos);
  CHECK(said.find("No space left") != std::string::npos);
}

TEST_CASE("a file that is no journal stays as it is") {
  const TempFolder folder;
  std::ofstream(folder.path / "sea.journal") << "notes about the sea";
  const auto writer = JournalWriter::open(folder.path.string(), "sea", {});
  REQUIRE_FALSE(writer);
  CHECK(writer.error().what.ends_with("sea.journal is not a journal of a site: move it away"));
  CHECK(std::filesystem::file_size(folder.path / "sea.journal") == 19);
}

TEST_CASE("a journal has one writer, and its owner alone can read it") {
  const TempFolder folder;
  auto first = JournalWriter::open(folder.path.string(), "sea", {});
  REQUIRE(first);
  const auto second = JournalWriter::open(folder.path.string(), "sea", {});
  REQUIRE_FALSE(second);
  CHECK(second.error().what.ends_with(
      "sea.journal has another writer: give each job a folder of its own"));
  struct stat st {};
  REQUIRE(::stat((folder.path / "sea.journal").c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
  first->reset();
  CHECK(JournalWriter::open(folder.path.string(), "sea", {}));
}

// A journal in a pipe that nobody reads: its disk takes for ever.
struct StuckJournal {
  explicit StuckJournal(std::uint64_t waiting) {
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    set_log_sink([this](LogLevel, std::string_view line) { said += line; });
    auto opened = JournalWriter::open(
        folder.path.string(), "sea", {.waiting = waiting, .flush = std::chrono::milliseconds(100)});
    REQUIRE(opened);
    writer = std::move(*opened);
    writer->start(kWriter, {"alps", "sea"});
  }
  ~StuckJournal() {
    writer.reset();
    set_log_sink({});
    // The thread comes to its end.
    const UniqueFd reader(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    std::string bytes(1 << 20, ' ');
    while (::read(reader.get(), bytes.data(), bytes.size()) != 0) ::usleep(1000);
  }
  TempFolder folder;
  std::filesystem::path file = folder.path / "sea.journal";
  std::string said;
  std::unique_ptr<JournalWriter> writer;
};

TEST_CASE("a disk that takes too long ends the journal") {
  StuckJournal journal(3 << 20);
  for (std::uint64_t number = 1; number <= 4; ++number) {
    journal.writer->merge(written_merge(number, 1 << 20), number, {some_bytes(1 << 20)});
  }
  CHECK(journal.said.find("takes too long to write") != std::string::npos);
}

TEST_CASE("a merge of many sites and a snapshot may wait for the disk, however long they are") {
  StuckJournal journal(1 << 20);
  const auto long_merge = [&](std::uint64_t number) {
    journal.writer->merge(written_merge(number, 1 << 20, 4), number,
                          std::vector<SharedBytes>(4, some_bytes(1 << 20)));
  };
  long_merge(1);
  journal.writer->snapshot({1, 1}, 1, some_bytes(1 << 20));
  CHECK(journal.said == "");
  long_merge(2);
  CHECK(journal.said == "");
  long_merge(3);
  CHECK(journal.said.find("takes too long to write") != std::string::npos);
}

TEST_CASE("a disk that takes too long does not hold up the end of a journal") {
  StuckJournal journal(30 << 20);
  journal.writer->merge(written_merge(1, 1 << 20), 1,
                        {some_bytes(1 << 20)});  // more than the pipe takes
  journal.writer.reset();
  CHECK(journal.said.find("sea.journal: its disk does not answer") != std::string::npos);
}

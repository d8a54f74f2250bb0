// Snapshots on disk, and jobs that begin with one.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include <doctest/doctest.h>

#include "elastic/state/snapshot_file.h"
#include "tests/unit/safe_fork.h"
#include "thread_world.h"

using namespace dlaunch;
namespace fs = std::filesystem;

namespace {

struct SavedModel {
  std::vector<double> w = std::vector<double>(1000);
  std::vector<double> shard;
  SavedModel(Member& m, const std::string& folder, int keep = 2) {
    std::uint64_t first = 0, last = 0;
    dl_even_share(100, m.rank(), m.size(), &first, &last);
    shard.assign(last - first, 0);
    m.state.replicated("w", w);
    m.state.sharded("shard", shard);
    if (!folder.empty()) m.state.snapshots(folder, 2, keep);
  }
  void step() {
    for (double& x : w) ++x;
    for (double& x : shard) ++x;
  }
  bool is(double steps) const {
    return std::ranges::count(w, steps) == std::ssize(w) &&
           std::ranges::count(shard, steps) == std::ssize(shard);
  }
};

using FolderOf = std::function<std::string(int rank)>;

// A whole job of `ranks` ranks: begins with `from` steps done and ends with `to`.
std::string run(const FolderOf& folder, int ranks, double from, double to) {
  Job job;
  std::vector<int> slots;
  for (int slot = 0; slot < ranks; ++slot) slots.push_back(slot);
  std::atomic<int> right = 0;
  job.start(slots, [&](Member& m) {
    SavedModel model(m, folder(m.rank()));
    m.state.sync();
    const bool begun = model.is(from);
    while (model.w.front() < to) {
      model.step();
      m.state.commit();
    }
    m.state.finish();
    right += begun && model.is(to);
  });
  for (const int slot : slots) {
    if (!job.ends(slot).back().empty()) return job.ends(slot).back();
  }
  return right == ranks ? "right" : "wrong";
}
std::string run(const std::string& folder, int ranks, double from, double to) {
  return run([&](int) { return folder; }, ranks, from, to);
}

std::vector<fs::path> files_of(const std::string& folder, const std::string& start) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().filename().string().starts_with(start)) files.push_back(file.path());
  }
  return files;
}

}  // namespace

TEST_CASE("snapshot: a job goes on where the one before it ended, with any number of ranks") {
  const TempFolder folder;
  const std::string path = folder.path.string() + "/deep/er";
  CHECK(run(path, 3, 0, 7) == "right");
  CHECK(run(path, 3, 7, 9) == "right");
  CHECK(run(path, 2, 9, 10) == "right");
  CHECK(run(path, 4, 10, 10) == "right");
  // The last, and two older ones.
  CHECK(files_of(path, "commit-").size() <= 3 * 5);
  CHECK(files_of(path, "").size() == files_of(path, "commit-").size());  // nothing unfinished
}

TEST_CASE("snapshot: jobs of other numbers of ranks that commit nothing leave it whole") {
  const TempFolder folder;
  const std::string path = folder.path.string();
  CHECK(run(path, 2, 0, 9) == "right");
  for (const int ranks : {4, 1, 3, 2, 1, 4}) CHECK(run(path, ranks, 9, 9) == "right");
  CHECK(run(path, 3, 9, 12) == "right");
}

TEST_CASE("snapshot: a damaged one is reported, and the one before it is used") {
  Warnings warnings;
  const TempFolder folder;
  CHECK(run(folder.path.string(), 2, 0, 6) == "right");
  CHECK(run(folder.path.string(), 2, 6, 7) == "right");
  const auto newest = files_of(folder.path.string(), "commit-3-7.shard-1-of-2");
  REQUIRE(newest.size() == 1);
  bool gone = false;
  SUBCASE("a wrong byte") {
    std::fstream file(newest[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put(1);
  }
  SUBCASE("torn") { fs::resize_file(newest[0], fs::file_size(newest[0]) / 2); }
  SUBCASE("gone") { gone = fs::remove(newest[0]); }
  CHECK(run(folder.path.string(), 2, 6, 9) == "right");
  CHECK((warnings.count("commit-3-7.shard-1-of-2.dlstate is damaged") > 0) == !gone);
}

TEST_CASE("snapshot: commits of two jobs never have the same name") {
  Warnings warnings;
  const TempFolder folder;
  const std::string path = folder.path.string();
  CHECK(run(path, 2, 0, 6) == "right");
  CHECK(run(path, 2, 6, 8) == "right");
  // What remains of the second job's snapshot.
  const auto parts = files_of(path, "commit-3-8.");
  REQUIRE(parts.size() == 3);
  fs::remove(parts[0]);
  SUBCASE("parts") {}
  SUBCASE("a damaged part") {
    fs::remove(parts[1]);
    fs::resize_file(parts[2], 10);
  }
  SUBCASE("an unfinished part") {
    fs::remove(parts[1]);
    fs::rename(parts[2], parts[2].string() + ".new");
  }
  CHECK(run(path, 2, 6, 8) == "right");
  CHECK(files_of(path, "commit-5-8.").size() == 3);
}

TEST_CASE("snapshot: with separate folders, too, commits of two jobs never have the same name") {
  const TempFolder a, b;
  const FolderOf folders = [&](int rank) { return (rank == 0 ? a : b).path.string(); };
  CHECK(run(folders, 2, 0, 6) == "right");
  CHECK(run(folders, 2, 6, 8) == "right");
  for (const auto& file : files_of(folders(1), "commit-3-8.")) fs::remove(file);
  CHECK(run(folders, 2, 6, 8) == "right");
  CHECK(files_of(folders(1), "commit-3-8.").empty());
  CHECK(files_of(folders(1), "commit-5-8.").size() == 1);
}

TEST_CASE("snapshot: if none is complete the job does not start over by itself") {
  Warnings warnings;
  const TempFolder folder;
  CHECK(run(folder.path.string(), 2, 0, 1) == "right");
  for (const auto& file : files_of(folder.path.string(), "commit-1-1.shard")) fs::remove(file);
  CHECK(
      run(folder.path.string(), 2, 0, 2) ==
      "no snapshot in " + folder.path.string() +
          " is complete: commit 1 of round 1 lacks the shard of rank 0 of 2; to start over, empty "
          "the folder");
}

TEST_CASE("snapshot: one of another program is refused") {
  const TempFolder folder;
  CHECK(run(folder.path.string(), 2, 0, 2) == "right");
  Job job;
  job.start({0, 1}, [&](Member& m) {
    std::vector<double> w(999);
    m.state.replicated("w", w);
    m.state.snapshots(folder.path.string(), 2, 2);
    m.state.sync();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string told = job.ends(rank).front();
    CHECK(told.find("belongs to another state: it has replicated 'w' (") != std::string::npos);
    CHECK(told.find("the program replicated 'w' (7992 bytes); to start") != std::string::npos);
  }
}

TEST_CASE("snapshot: separate folders work as well as a shared one") {
  const TempFolder a, b;
  CHECK(run([&](int rank) { return (rank == 0 ? a : b).path.string(); }, 2, 0, 5) == "right");
  // The ranks' hosts have changed places.
  CHECK(run([&](int rank) { return (rank == 0 ? b : a).path.string(); }, 2, 5, 6) == "right");
}

TEST_CASE("snapshot: a failing disk is reported once, and training continues") {
  Warnings warnings;
  const TempFolder folder;
  const std::string path = folder.path.string() + "/snapshots";
  Job job;
  std::atomic<bool> right = false;
  job.start({0}, [&](Member& m) {
    SavedModel model(m, path);
    m.state.sync();
    std::ofstream(path) << "in the way";
    for (int i = 0; i < 20; ++i) {
      model.step();
      m.state.commit();
    }
    m.state.finish();
    right = model.is(20);
  });
  CHECK(job.ends(0).back() == "");
  CHECK(right);
  CHECK(warnings.count("is not saved; training continues") == 1);
  // What cannot be read must not look like nothing.
  CHECK(run(path, 1, 0, 20).find("read the snapshot folder") == 0);
}

TEST_CASE("snapshot: while a rank's disk fails, the last complete one stays") {
  Warnings warnings;
  const TempFolder a, b;
  const FolderOf folders = [&](int rank) { return (rank == 0 ? a : b).path.string() + "/saved"; };
  const std::string broken = folders(1), away = b.path.string() + "/away";
  Job job;
  job.start({0, 1}, [&](Member& m) {
    SavedModel model(m, folders(m.rank()), 1);
    m.state.sync();
    const auto go_on_to = [&](double steps) {
      while (model.w.front() < steps) {
        model.step();
        m.state.commit();
      }
      m.state.finish();  // what is written has been
    };
    go_on_to(2);
    if (m.rank() == 1) {
      fs::rename(broken, away);
      std::ofstream(broken) << "in the way";
    }
    for (const double steps : {4, 6, 8}) go_on_to(steps);
  });
  CHECK(job.ends(0).back() == "");
  CHECK(files_of(folders(0), "commit-1-2.").size() == 2);
  CHECK(files_of(folders(0), "commit-").size() == 4);  // and what it wrote of the last
  CHECK(warnings.count("is not saved; training continues") == 1);
  fs::remove(broken);
  fs::rename(away, broken);
  CHECK(run(folders, 2, 2, 8) == "right");
}

TEST_CASE("snapshot: a shard lost with two neighbours comes from disk") {
  const TempFolder folder;
  Job job;
  Meeting both(2);
  std::atomic<int> right = 0;
  job.start({0, 1, 2, 3}, [&](Member& m) {
    SavedModel model(m, folder.path.string());
    m.state.sync();
    for (int i = 0; i < 2; ++i) {
      model.step();
      m.state.commit();
    }
    m.state.finish();  // commit 2 is on disk
    model.step();
    m.state.commit();
    dl_barrier(m.comm());
    if (m.slot == 1 || m.slot == 2) {
      both.come();
      throw Killed();
    }
    m.state.recover();
    right += model.is(2);
    model.step();
    m.state.commit();
    right += m.state.committed().round > 1;
  });
  CHECK(job.ends(0).back() == "");
  CHECK(right == 4);
}

TEST_CASE("snapshot: a forked child does not wait for its parent's writer") {
  const TempFolder folder;
  auto comm = dl::Communicator::init();
  auto state = std::make_unique<dl::State>(comm);
  int step = 0;
  state->value("step", step);
  state->snapshots(folder.path, 1, 1);
  state->sync();
  state->finish();  // the writer waits for more
  const pid_t child = safe_fork();
  if (child == 0) {
    ::alarm(20);
    const bool refused = dl_state_finish(state->get()) == DL_ERR_INVALID;
    state.reset();
    ::_exit(refused ? 7 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
  state->commit();
  state->finish();
}

// What is written down about a job: its end waits for the files.
#include "launcher/lead/job_telemetry.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "base/unique_fd.h"
#include "tests/unit/elastic/job_world.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("a job ends only when its run folder is written") {
  TempFolder dir;
  // In place of a file system that takes its time, a pipe that is full.
  const std::filesystem::path job_file = dir.path / "job.json";
  REQUIRE(::mkfifo(job_file.c_str(), 0600) == 0);
  const UniqueFd pipe(::open(job_file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(pipe);
  std::string filling(4096, '.');
  while (::write(pipe.get(), filling.data(), filling.size()) > 0) {
  }

  asio::io_context loop;
  Plan plan{.argv = {"./train"}, .host = "a"};
  plan.run_dir = dir.path;
  plan.events_file = dir.path / "events.jsonl";
  JobWorld job(JobConfig{.size = 2, .max_size = 2});
  JobTelemetry telemetry(plan);
  const auto look = [](const std::function<void(const JobStatus&)>&) {};
  REQUIRE(telemetry.open(loop, look, false));
  telemetry.begins(job.core, {"a"}, {});
  telemetry.finish();
  bool closed = false;
  telemetry.close([] { return false; }, [&] { closed = true; });
  loop.run_for(200ms);
  CHECK_FALSE(closed);

  std::string text;
  const auto read_all = [&] {
    for (ssize_t got; (got = ::read(pipe.get(), filling.data(), filling.size())) > 0;)
      text.append(filling, 0, static_cast<std::size_t>(got));
  };
  for (const TimePoint deadline = steady_now() + 30s; !closed && steady_now() < deadline;) {
    read_all();
    loop.restart();
    loop.run_for(10ms);
  }
  read_all();
  CHECK(closed);
  CHECK(text.find("\"./train\"") != std::string::npos);
}

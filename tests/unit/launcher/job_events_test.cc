// Events of a job: what is found out, and the lines in which it is written.
#include "launcher/lead/job_events.h"

#include <fcntl.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/lead/events/event_log.h"
#include "tests/unit/elastic/job_world.h"
#include "tests/unit/launcher/hub_world.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr EventTime kEventTime{
    .wall = std::chrono::sys_days{std::chrono::year{2026} / 2 / 28} + 25h + 62'003ms,
    .monotonic = TimePoint(1500ms)};

std::string event_line(const JobEvent& event) { return render_json(event, kEventTime, "j"); }

// A job, and the words of its events.
struct EventsWorld {
  explicit EventsWorld(JobConfig config, bool elastic = true)
      : job(config, elastic), events(plan, [this](const JobEvent& event) { take(event); }) {
    events.begins(job.core, {"a"}, {});
    events.observe(job.now, job.core);
  }
  void take(const JobEvent& event) {
    const auto json = nlohmann::json::parse(event_line(event));
    std::string words = json["event"];
    for (const char* key : {"round", "size", "from", "to", "reason", "version", "commits"}) {
      if (json.contains(key)) words += " " + json[key].dump();
    }
    seen.push_back(words);
  }
  void ends(Slot slot, WorkerEnd end) {
    end.rank = job.core.rank_of(slot);
    events.observe(job.now, job.core);
    events.ended(end, job.core);
    job.fail(slot, end.peer_lost >= 0);
    events.observe(job.now, job.core);
  }
  void feed(const JobCore::Event& event) {
    events.fed(job.now, event, job.core);
    job.feed(event);
    events.observe(job.now, job.core);
  }
  std::vector<std::string> take_seen() { return std::exchange(seen, {}); }

  Plan plan{.argv = {"./train"}, .host = "a"};
  JobWorld job;
  std::vector<std::string> seen;
  JobEvents events;
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("events: lines of JSON with both clocks, and members in a fixed order") {
  CHECK(rfc3339(kEventTime.wall) == "2026-03-01T01:01:02.003Z");
  CHECK(event_line(job_event::Round{.round = 3, .size = 4, .without = 250ms}) ==
        "{\"time\":\"2026-03-01T01:01:02.003Z\",\"monotonic\":1.5,\"job\":\"j\","
        "\"event\":\"round\",\"round\":3,\"size\":4,\"without_s\":0.25}\n");
  const job_event::WorkerEnded killed{.how = job_event::Ending::failed,
                                      .kind = FailureKind::out_of_memory,
                                      .round = 2,
                                      .rank = 1,
                                      .pid = 7,
                                      .host = "b\xff",
                                      .signal = 9,
                                      .ran = 2s};
  CHECK(event_line(killed).find(
            "\"event\":\"failure\",\"rank\":1,\"host\":\"b\xef\xbf\xbd\",\"pid\":7,"
            "\"round\":2,\"kind\":\"out_of_memory\",\"exit_code\":null,"
            "\"signal\":\"SIGKILL\",\"lost_peer\":null,\"ran_s\":2.0}\n") != std::string::npos);
  CHECK(event_line(job_event::WorkerEnded{.how = job_event::Ending::stopped, .exit_code = 1})
            .find("\"event\":\"exit\",\"rank\":null") != std::string::npos);
  GoodputSummary goodput{.totals = {}, .culprit = 1, .cost = 2s, .host = "b", .cause = "link"};
  goodput.totals.wall = 10s;
  goodput.totals.total = 20s;
  goodput.totals.compute = 12s;
  goodput.totals.transfer = 3s;
  goodput.totals.waiting = 5s;
  CHECK(event_line(job_event::GoodputSums{4, goodput})
            .ends_with("\"event\":\"goodput\",\"round\":4,\"goodput\":0.75,\"wall_s\":10.0,"
                       "\"rank_seconds\":20.0,\"compute_s\":12.0,\"transfer_s\":3.0,"
                       "\"waiting_s\":5.0,\"recovery_s\":0.0,\"lost_work_s\":0.0,\"start_s\":0.0,"
                       "\"culprit\":1,\"culprit_s\":2.0,\"culprit_host\":\"b\",\"culprit_cause\":"
                       "\"link\"}\n"));
  // A newline in words of others stays in its line.
  const std::string line = event_line(job_event::StartFailed{0, "exec 'a\nb'"});
  CHECK(line.find('\n') == line.size() - 1);
}

TEST_CASE("events: a failure, its restart and the next round") {
  EventsWorld world(of(2, 3));
  CHECK(world.take_seen() == Words{"job_started 2", "host_joined", "round 1 2"});
  world.ends(1, {.exit_code = 3});
  // The other one says that it lost that rank: no cause.
  world.ends(0, {.exit_code = 70, .peer_lost = 1});
  world.job.rejoin_all();
  world.events.observe(world.job.now, world.job.core);
  const Words seen = world.take_seen();
  REQUIRE(seen.size() >= 4);
  CHECK(seen[0] == "failure 1");
  CHECK(seen[1] == "restart 2 \"exit_code\"");
  CHECK(seen[2].starts_with("failure"));
  CHECK(seen.back().starts_with("round "));
  CHECK(seen.back().ends_with(" 2"));
}

TEST_CASE("events: of several failures the one that no other explains is the reason") {
  EventsWorld world(of(3, 1), false);
  world.take_seen();
  world.events.ended({.rank = 0, .exit_code = 70, .peer_lost = 1}, world.job.core);
  world.events.ended({.rank = 1, .signal = 9}, world.job.core);
  world.job.fail(1);
  world.events.observe(world.job.now, world.job.core);
  CHECK(world.seen.at(2) == "restart 2 \"signal\"");
}

TEST_CASE("events: a second failure of a round is not the reason of a later restart") {
  EventsWorld world(of(3, 3), false);
  world.take_seen();
  world.job.stubborn = {2};
  world.ends(1, {.exit_code = 3});
  CHECK(world.take_seen() == Words{"failure 1", "restart 2 \"exit_code\""});
  world.ends(2, {.signal = 11});
  world.job.now += 1s;
  world.feed(JobCore::Clock{});
  CHECK(world.take_seen().back() == "round 2 3");
  world.ends(0, {.exit_code = 4});
  CHECK(world.take_seen().at(1) == "restart 3 \"exit_code\"");
}

TEST_CASE("events: a smaller round is a resize") {
  JobConfig config = of(3, 0);
  config.min_size = 2;
  EventsWorld world(config);
  world.take_seen();
  world.ends(2, {.exit_code = 3});
  world.job.rejoin_all();
  world.events.observe(world.job.now, world.job.core);
  CHECK(world.take_seen() == Words{"failure 1", "round 2 2", "resize 2 3 2"});
}

TEST_CASE("events: commits that follow each other closely share an event") {
  EventsWorld world(of(2));
  world.take_seen();
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Progress{1, 1});  // the same commit
  CHECK(world.take_seen() == Words{"commit 1 1 1"});
  world.job.now += 50ms;
  world.feed(JobCore::Progress{0, 2});
  world.feed(JobCore::Progress{0, 3});
  CHECK(world.seen.empty());
  world.job.now += 60ms;
  world.feed(JobCore::Progress{0, 4});
  CHECK(world.take_seen() == Words{"commit 1 4 3"});
  // Another event does not come before the commits that it follows.
  world.feed(JobCore::Progress{0, 5});
  world.events.ordered("something");
  CHECK(world.take_seen() == Words{"commit 1 5 1", "order"});
}

TEST_CASE("events: what is free is no restart of the budget, and the end comes once") {
  EventsWorld world(of(2, 1, 1));
  world.take_seen();
  world.feed(JobCore::Replace{0, FailureKind::voluntary});
  CHECK(world.take_seen().at(0) == "restart 2 \"voluntary\"");
  world.feed(JobCore::Signal{15});
  CHECK(world.take_seen().back() == "signal");
  world.events.job_ended(143, "interrupted", 3s, &world.job.core);
  world.events.job_ended(0, "", 3s, nullptr);
  CHECK(world.take_seen().size() == 1);
}

TEST_CASE("events: under the next leader restarts are not counted again") {
  JobWorld earlier(of(2, 3));
  earlier.fail(1);
  earlier.rejoin_all();
  const JobRecord was = earlier.core.record();
  REQUIRE(was.restarts_used == 1);
  JobWorld job(of(2, 3), earlier);
  const Plan plan{.argv = {"./train"}, .host = "b"};
  std::vector<JobEvent> seen;
  JobEvents events(plan, [&](const JobEvent& event) { seen.push_back(event); });
  events.begins(job.core, {}, was);
  events.observe(job.now, job.core);
  REQUIRE_FALSE(seen.empty());
  CHECK(std::get<job_event::LeadTaken>(seen[0]).round == was.round);
  for (const auto& event : seen) CHECK_FALSE(std::holds_alternative<job_event::Restart>(event));
}

TEST_CASE("event log: it appends whole lines, and closes once all is written") {
  TempFolder folder;
  const std::string path = folder.path / "e";
  for (int leader = 0; leader < 2; ++leader) {
    asio::io_context loop;
    auto log = EventLog::open(loop, path, "j");
    REQUIRE(log);
    for (int i = 0; i < 100; ++i) (*log)->add(job_event::HostJoined{"a"});
    bool closed = false;
    (*log)->close([] { return false; }, [&] { closed = true; });
    turn_until(loop, [&] { return closed; });
  }
  const UniqueFd file(::open(path.c_str(), O_RDONLY));
  const std::string text = available(file);
  CHECK(std::count(text.begin(), text.end(), '\n') == 200);
  asio::io_context loop;
  CHECK_FALSE(EventLog::open(loop, folder.path, "j"));
}

TEST_CASE("event log: a file that does not take them holds up nobody, and the losses are counted") {
  TempFolder folder;
  const std::string path = folder.path / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  asio::io_context loop;
  CHECK_FALSE(EventLog::open(loop, path, "j"));  // without a reader
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  auto log = EventLog::open(loop, path, "j");
  REQUIRE(log);
  constexpr int kAll = 20'000;  // far more than 8 MiB
  const std::string host(1000, 'a');
  for (int i = 0; i < kAll; ++i) (*log)->add(job_event::HostJoined{host});
  std::string text;
  bool closed = false;
  (*log)->close([] { return false; }, [&] { closed = true; });
  turn_until(loop, [&] { return text += available(reader), closed; });
  (*log)->add(job_event::HostJoined{"b"});
  closed = false;
  (*log)->close([] { return false; }, [&] { closed = true; });
  turn_until(loop, [&] { return text += available(reader), closed; });
  text += available(reader);
  std::size_t lost = 0, whole = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    const auto json = nlohmann::json::parse(text.substr(at, end - at));
    json["event"] == "lost" ? lost += json["events"].get<std::size_t>() : ++whole;
    at = end + 1;
  }
  CHECK(lost > 0);
  CHECK(lost + whole == kAll + 1);
}

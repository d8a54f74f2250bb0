#include "launcher/lead/control/control_request.h"

#include <signal.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch;
using Ask = ControlRequest::Command;
using namespace std::chrono_literals;

namespace {

std::string why_not(const std::string& text) {
  const auto request = parse_control_request(text);
  return request ? "" : request.error().what;
}

WorkerStatus running(Slot slot, int rank) {
  return {.slot = slot,
          .rank = rank,
          .pid = 100 + slot,
          .up = true,
          .linked = true,
          .state = "running",
          .ran = 3s,
          .operation = {}};
}

// Three elastic workers in slots 0, 1 and 4, and a spare.
JobStatus three() {
  JobStatus job;
  job.state = JobState::active;
  job.size = job.target_size = 3;
  job.max_size = 5;
  job.workers = {running(0, 0), running(4, 1), running(1, 2), running(3, -1)};
  return job;
}

ControlDecision ask(const JobStatus& job, Ask command, std::optional<int> number = {}) {
  return decide({command, number}, job);
}

template <class Event>
const Event* order(const ControlDecision& decision) {
  CHECK(decision.refused == "");
  CHECK_FALSE(decision.done.empty());
  REQUIRE(decision.event);
  return std::get_if<Event>(&*decision.event);
}

}  // namespace

TEST_CASE("a job that waits for its hosts can be shown and ended") {
  JobStatus job;
  job.waits_for = "its hosts";
  CHECK(ask(job, Ask::status).refused.empty());
  CHECK(order<JobCore::Signal>(ask(job, Ask::stop))->number == SIGTERM);
  for (const auto command : {Ask::stacks, Ask::resize, Ask::restart}) {
    CHECK(ask(job, command, 1).refused == "the job has not begun, it waits for its hosts");
  }
}

TEST_CASE("each request is understood as it was written") {
  for (const auto& request : {ControlRequest{Ask::status, {}}, ControlRequest{Ask::stop, {}},
                              ControlRequest{Ask::top, {}}, ControlRequest{Ask::stacks, {}},
                              ControlRequest{Ask::stacks, 2}, ControlRequest{Ask::resize, 7},
                              ControlRequest{Ask::restart, 0}}) {
    const auto read = parse_control_request(encode(request));
    REQUIRE(read);
    CHECK(read->command == request.command);
    CHECK(read->number == request.number);
  }
  CHECK(encode({Ask::resize, 7}) == R"({"command":"resize","size":7})");
}

TEST_CASE("a malformed request is refused with the reason") {
  for (const char* text :
       {"", "{", "[]", "7", "\"status\"", "{\"command\":\"status\"} x", "\xff"}) {
    CAPTURE(text);
    CHECK(why_not(text) == "the request is not a JSON object");
  }
  for (const char* text :
       {"{}", R"({"command":7})", R"({"command":"dance"})", R"({"command":null})"}) {
    CAPTURE(text);
    CHECK(why_not(text) == "the request has no command that this dlaunch knows");
  }
  CHECK(why_not(R"({"command":"resize"})") == "resize needs a \"size\"");
  CHECK(why_not(R"({"command":"restart"})") == "restart needs a \"rank\"");
  CHECK(why_not(R"({"command":"resize","rank":1})") == "\"rank\" has no meaning for resize");
  CHECK(why_not(R"({"command":"stop","now\n":true})") == "\"now\\x0a\" has no meaning for stop");
  for (const char* number :
       {"-1", "1.5", "\"4\"", "null", "true", "[4]", "2147483648", "1e3", "99999999999999999999"}) {
    CAPTURE(number);
    CHECK(why_not(std::string(R"({"command":"resize","size":)") + number + "}") ==
          "\"size\" is not a number from 0");
  }
  CHECK(why_not(std::string(5000, ' ') + R"({"command":"status"})") == "the request is too long");
  CHECK_FALSE(parse_control_request(std::string(4000, '[')));
}

TEST_CASE("resize takes from 1 to --max-nproc, of elastic programs") {
  CHECK(order<JobCore::Resize>(ask(three(), Ask::resize, 1))->size == 1);
  CHECK(order<JobCore::Resize>(ask(three(), Ask::resize, 5))->size == 5);
  CHECK(ask(three(), Ask::resize, 5).done == "the job goes from 3 workers to 5");
  CHECK(order<JobCore::Resize>(ask(three(), Ask::resize, 3))->size == 3);  // ends a growth
  for (const int size : {0, 6, 1 << 30}) {
    const auto decision = ask(three(), Ask::resize, size);
    CHECK(decision.refused ==
          "this job may have from 1 to 5 workers (see --max-nproc), not " + std::to_string(size));
    CHECK_FALSE(decision.event);
  }
  JobStatus job = three();
  for (auto& worker : job.workers) worker.linked = worker.rank < 0;  // spares do not count
  CHECK(ask(job, Ask::resize, 2).refused.find("elastic rounds") != std::string::npos);
  job = three();
  job.workers[1].state = "done";
  CHECK(ask(job, Ask::resize, 2).refused == "some of its workers have finished already");
}

TEST_CASE("restart names a rank that runs, wherever its slot is") {
  const auto decision = ask(three(), Ask::restart, 1);
  const auto* replace = order<JobCore::Replace>(decision);
  REQUIRE(replace != nullptr);
  CHECK(replace->slot == 4);
  CHECK(replace->kind == FailureKind::voluntary);
  CHECK(decision.done == "rank 1 (pid 104) is restarted");

  CHECK(ask(three(), Ask::restart, 3).refused ==
        "there is no rank 3: the job has 3 workers, counted from 0");
  JobStatus job = three();
  job.workers[1].up = false;
  job.workers[1].state = "to be started";
  CHECK(ask(job, Ask::restart, 1).refused == "rank 1 does not run: to be started");
  job = three();
  job.workers[1].linked = false;
  CHECK(ask(job, Ask::restart, 1).done.find("all that are not elastic") != std::string::npos);
}

TEST_CASE("stacks show all processes, or one rank") {
  JobStatus job = three();
  CHECK(ask(job, Ask::stacks).stacks_of.size() == 4);
  job.workers[2].pid = 0;
  CHECK(ask(job, Ask::stacks).stacks_of.size() == 3);
  REQUIRE(ask(job, Ask::stacks, 1).stacks_of.size() == 1);
  CHECK(ask(job, Ask::stacks, 1).stacks_of[0].pid == 104);
  job.workers[2].host = "far";
  CHECK(ask(job, Ask::stacks, 2).refused.find("rank 2 runs on host far") == 0);
  job.workers[2].up = false;
  CHECK(ask(job, Ask::stacks, 2).refused.find("rank 2 has no process") == 0);
  CHECK(ask(job, Ask::stacks, 9).refused.find("there is no rank 9") == 0);
}

TEST_CASE("a job that is ending can be seen and be stopped harder, but not be changed") {
  JobStatus job = three();
  job.state = JobState::ending;
  CHECK(ask(job, Ask::resize, 2).refused == "the job is ending");
  CHECK(ask(job, Ask::restart, 1).refused == "the job is ending");
  CHECK(ask(job, Ask::status).refused == "");
  CHECK(ask(job, Ask::stacks).stacks_of.size() == 4);
  CHECK(order<JobCore::Signal>(ask(job, Ask::stop))->number == SIGTERM);
  job.state = JobState::ended;
  CHECK(ask(job, Ask::stop).refused == "the job has ended");
}

TEST_CASE("the status as JSON lists workers by rank, and spares separately") {
  JobStatus job = three();
  job.now = TimePoint(100s);
  job.waits_for = "rank 2 to start";
  job.workers[0].operation = FlightEntry{"all_reduce #7", FlightState::running, TimePoint(98s), {}};
  job.workers[1].operation =
      FlightEntry{"barrier #6", FlightState::failed, TimePoint(98s), TimePoint(99s)};
  job.workers[1].local_rank = 0;  // on another host
  job.workers[2].pid = 0;
  job.workers[2].ran.reset();
  const auto json = nlohmann::json::parse(render_json(job));
  CHECK(json["state"] == "active");
  CHECK(json["waits_for"] == "rank 2 to start");
  REQUIRE(json["workers"].size() == 3);
  REQUIRE(json["spares"].size() == 1);
  CHECK(json["spares"][0]["rank"].is_null());
  CHECK(json["workers"][1]["rank"] == 1);
  CHECK(json["workers"][1]["local_rank"] == 0);
  CHECK(json["spares"][0]["local_rank"].is_null());
  CHECK(json["workers"][0]["last_operation"]["since_s"] == 2.0);
  CHECK(json["workers"][0]["last_operation"]["state"] == "running");
  CHECK(json["workers"][1]["last_operation"]["since_s"] == 1.0);
  CHECK(json["workers"][1]["last_operation"]["state"] == "failed");
  CHECK(json["workers"][2]["pid"].is_null());
  CHECK(json["workers"][2]["ran_s"].is_null());
  CHECK(json["workers"][2]["last_operation"].is_null());
}

TEST_CASE("the status as JSON lists the ranks for which others wait") {
  JobStatus job = three();
  CHECK(nlohmann::json::parse(render_json(job))["late"] == nlohmann::json::array());
  job.late = {{.ranks = {1}, .waiting = {0, 2}, .waited = 9700ms, .text = "rank 1 is late"}};
  CHECK(nlohmann::json::parse(render_json(job))["late"] ==
        nlohmann::json::parse(
            R"([{"ranks": [1], "waiting": [0, 2], "waited_s": 9.7, "text": "rank 1 is late"}])"));
}

TEST_CASE("the status as JSON names a busy host instead of a rank") {
  JobStatus job = three();
  job.goodput = GoodputSummary{.cost = 3s, .host = "b", .cause = "host"};
  const auto goodput = nlohmann::json::parse(render_json(job))["goodput"];
  CHECK(goodput["culprit"].is_null());
  CHECK(goodput["culprit_host"] == "b");
  CHECK(goodput["culprit_s"] == 3.0);
}

TEST_CASE("bytes of another host that are not UTF-8 do not break the status") {
  JobStatus job = three();
  job.workers[1].operation = FlightEntry{"\xff", FlightState::running, TimePoint(98s), {}};
  const auto json = nlohmann::json::parse(render_json(job));
  CHECK(json["workers"][1]["last_operation"]["operation"] == "\xef\xbf\xbd");
}

TEST_CASE("a host is drained if the elastic job can continue without it") {
  const auto say = [](const JobStatus& job, Ask command, const std::string& host) {
    return decide({command, {}, host}, job);
  };
  JobStatus job = three();
  job.min_size = 1;
  job.all_hosts = {{.node = 0, .name = "a", .ranks = 1}, {.node = 1, .name = "b", .ranks = 2}};
  job.all_hosts[1].listed_as = "b.site";
  for (WorkerStatus& worker : job.workers) worker.host = worker.rank == 0 ? "a" : "b";
  for (const char* name : {"b", "b.site"}) {
    const auto decision = say(job, Ask::drain, name);
    CHECK(decision.refused == "");
    CHECK(decision.done == "host b is drained: its 2 workers leave at the next commit");
    REQUIRE(decision.drain);
    CHECK(decision.drain->node == 1);
  }
  // A worker that has failed there, and has not been started again, has nothing to leave.
  job.workers[1].up = false;
  CHECK(say(job, Ask::drain, "b").done ==
        "host b is drained: its worker leaves at the next commit");
  job.workers[2].up = false;
  CHECK(say(job, Ask::drain, "b").done == "host b is drained");
  CHECK(say(job, Ask::drain, "c").refused == "there is no host c in this job: a, b");
  CHECK(say(job, Ask::undrain, "b").refused == "host b is not drained");
  job.min_size = 2;
  CHECK(
      say(job, Ask::drain, "b").refused ==
      "the job cannot continue with fewer than 2 workers (--nnodes MIN:MAX, --min-nproc), and its "
      "other hosts have 1");
  CHECK(say(job, Ask::drain, "a").refused == "");
  job.all_hosts[0].drained = true;  // what is left of it does not count
  job.min_size = 1;
  CHECK(say(job, Ask::drain, "a").refused == "host a is drained already");
  CHECK_FALSE(say(job, Ask::drain, "b").refused.empty());
  CHECK(say(job, Ask::undrain, "a").done == "host a may have workers again");
  job.all_hosts[0].left = true;
  CHECK(say(job, Ask::undrain, "a").done == "host a may have workers again: start dlaunch there");

  JobStatus plain = three();
  plain.all_hosts = {{.node = 0, .name = "a", .ranks = 1}, {.node = 1, .name = "b", .ranks = 2}};
  for (auto& worker : plain.workers) worker.linked = false;
  CHECK(say(plain, Ask::drain, "b").refused ==
        "its program does not take part in elastic rounds, or not yet: see dl_rejoin in dlring(3)");
  plain = three();
  plain.several_programs = true;
  plain.all_hosts = {{.node = 0, .name = "a", .ranks = 3}};
  CHECK(say(plain, Ask::drain, "a").refused ==
        "its ranks run different programs, and a smaller job would give them other ranks");

  CHECK(encode({Ask::drain, {}, "b"}) == R"({"command":"drain","host":"b"})");
  const auto read = parse_control_request(R"({"command":"undrain","host":"b"})");
  REQUIRE(read);
  CHECK(read->host == "b");
  CHECK(why_not(R"({"command":"drain"})") == "drain needs a \"host\"");
  CHECK(why_not(R"({"command":"drain","host":7})") == "\"host\" is not a name");
  CHECK_FALSE(why_not(R"({"command":"stop","host":"b"})").empty());
}

TEST_CASE("events may be asked for after a number, and nothing else may") {
  const auto after = parse_control_request(R"({"command":"events","after":18446744073709551615})");
  REQUIRE(after);
  CHECK(after->after == UINT64_MAX);
  CHECK(parse_control_request(encode(*after))->after == UINT64_MAX);
  CHECK_FALSE(parse_control_request(R"({"command":"events"})")->after);
  CHECK(why_not(R"({"command":"events","after":-1})") == "\"after\" is not a number from 0");
  CHECK(why_not(R"({"command":"events","after":"1"})") == "\"after\" is not a number from 0");
  CHECK(why_not(R"({"command":"status","after":1})") == "\"after\" has no meaning for status");
}

TEST_CASE("the phase of a job, as services need it") {
  CHECK(phase_of(JobState::idle, false, {}) == JobPhase::queued);
  CHECK(phase_of(JobState::forming, false, {}) == JobPhase::launching);
  CHECK(phase_of(JobState::active, true, {}) == JobPhase::running);
  CHECK(phase_of(JobState::forming, true, {}) == JobPhase::running);
  CHECK(phase_of(JobState::ending, true, {}) == JobPhase::running);
  CHECK(phase_of(JobState::ended, true, 0) == JobPhase::finished);
  CHECK(phase_of(JobState::idle, false, 75) == JobPhase::failed);
}

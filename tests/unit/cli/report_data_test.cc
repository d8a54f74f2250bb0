#include "cli/report/report_data.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "cli/report/report_page.h"

namespace dlaunch {
namespace {

using nlohmann::json;

const char* const kEvents =
    R"({"monotonic":100,"event":"job_started","program":"train"}
{"monotonic":101,"event":"round","round":1,"size":2}
{"monotonic":102,"event":"commit","version":1}
{"monotonic":104,"event":"commit","version":3,"commits":4}
{"monotonic":105,"event":"round","round":2,"size":2}
{"monotonic":107,"event":"commit","version":4}
{"monotonic":108,"event":"job_ended","exit_code":3,"ran_s":8.25}
)";

json data_of(const RunFiles& files) { return json::parse(report_data(files)); }

TEST_CASE("report data: the outcome and the time come from the job's last event") {
  const json data = data_of({.events = kEvents});
  CHECK(data["job"]["outcome"] == "failed");
  CHECK(data["job"]["exit_code"] == 3);
  CHECK(data["job"]["ran_s"] == 8.25);
  CHECK(data["job"]["size"] == 2);
  CHECK(data["notes"].empty());
  const std::string events(kEvents);
  const std::string running = events.substr(0, events.find(R"({"monotonic":108)"));
  const json job = data_of({.events = running})["job"];
  CHECK(job["outcome"] == "running");
  CHECK(job["ran_s"] == 7);
}

TEST_CASE("report data: a step is the time per commit, within a round") {
  const json steps = data_of({.events = kEvents})["series"]["steps"];
  CHECK(steps["t"] == json{4});
  CHECK(steps["s"] == json{0.5});
}

TEST_CASE("report data: samples become one column for each rank, also for a rank that comes late") {
  const json series = data_of(
      {.events = R"({"monotonic":10,"event":"job_started"})",
       .waiting = R"({"monotonic":11,"seconds":1,"ranks":[{"rank":0,"waiting":0.5,"caused":0}]}
{"monotonic":12,"seconds":1,"ranks":[{"rank":0,"waiting":0,"caused":0.25},{"rank":1,"waiting":0.25,"caused":0}]}
)"})["series"];
  CHECK(series["t"] == json{1, 2});
  CHECK(series["ranks"][0]["waiting"] == json{0.5, 0});
  CHECK(series["ranks"][0]["caused"] == json{0, 0.25});
  CHECK(series["ranks"][1]["waiting"] == json{0, 0.25});
}

TEST_CASE("report data: a wait has the place of its cause, and the rank that was waited for") {
  const json series = data_of(
      {.waiting = R"({"monotonic":11,"seconds":1,"ranks":[{"rank":0,"waiting":0.5,"caused":0}]}
{"monotonic":12,"seconds":1,"ranks":[{"rank":0,"waiting":0.5,"caused":0,"waiting_cause":"host","waited_for":1},{"rank":1,"waiting":0,"caused":0.5,"caused_cause":"gc"}]}
{"monotonic":13,"seconds":1,"ranks":[{"rank":0,"waiting":0.5,"caused":0,"waiting_cause":"boredom","waited_for":-7},{"rank":1,"caused_cause":3,"waited_for":"x"}]}
)"})["series"];
  CHECK(series["causes"] == json{"compute", "input", "gc", "link", "host"});
  CHECK(series["ranks"][0]["waiting_cause"] == json{-1, 4, -1});
  CHECK(series["ranks"][0]["waited_for"] == json{-1, 1, -1});
  CHECK(series["ranks"][1]["caused_cause"] == json{-1, 2, -1});
  CHECK(series["ranks"][1]["waited_for"] == json{-1, -1, -1});
}

TEST_CASE(
    "report data: the bus bandwidth of each collective and size, and the best of all samples") {
  const json bandwidth = data_of(
      {.bandwidth =
           R"({"monotonic":11,"ranks":4,"collectives":[{"kind":"all_reduce","size":"16MiB","calls":4,"bytes":4000,"ns":2000}]}
{"monotonic":12,"ranks":4,"collectives":[{"kind":"all_reduce","size":"16MiB","calls":4,"bytes":4000,"ns":6000},{"kind":"all_gather","size":"4KiB","calls":4,"bytes":400,"ns":100}]}
{"monotonic":13,"ranks":1,"collectives":[{"kind":"all_reduce","size":"16MiB","calls":1,"bytes":9000,"ns":1}]}
{"monotonic":14,"ranks":4,"collectives":[3,{"kind":"no","size":"4KiB","ns":1},{"kind":"reduce","size":7,"ns":1},{"kind":"reduce","size":"4KiB"}]}
)"})["bandwidth"];
  REQUIRE(bandwidth.size() == 2);
  CHECK(bandwidth[0]["collective"] == "all_reduce");
  CHECK(bandwidth[0]["size"] == "16MiB");
  CHECK(bandwidth[0]["calls"] == 8);
  CHECK(bandwidth[0]["busbw"] == doctest::Approx(1.5e9));
  CHECK(bandwidth[0]["best"] == doctest::Approx(3e9));
  CHECK(bandwidth[1]["busbw"] == doctest::Approx(12e9));  // each of four ranks has a part
  CHECK(bandwidth[0]["limit"].is_null());
  CHECK(data_of({})["bandwidth"].empty());
}

TEST_CASE("report data: bandwidth beside its limit, the cores' copies or the line between hosts") {
  RunFiles files{
      .bandwidth =
          R"({"monotonic":11,"ranks":4,"collectives":[{"kind":"all_reduce","size":"16MiB","calls":4,"bytes":4000,"ns":2000},{"kind":"broadcast","size":"4KiB","calls":4,"bytes":400,"ns":100}]}
)"};
  files.limits = R"({"hosts":1,"copiers":2,"copies_bytes_per_s":{"16MiB":5e9}})";
  json data = data_of(files);
  CHECK(data["bandwidth"][0]["limit"] == 5e9);
  CHECK(data["bandwidth"][1]["limit"].is_null());
  CHECK(data["limits"]["copiers"] == 2);
  files.limits = R"({"hosts":2,"interface":"eth0","line_bytes_per_s":1e9})";
  data = data_of(files);
  // An all_reduce of 4 ranks has a bus factor of 3/2, and over the line one of 2 hosts has 1.
  CHECK(data["bandwidth"][0]["limit"] == 1.5e9);
  CHECK(data["bandwidth"][1]["limit"] == 1e9);
  CHECK(data["limits"]["interface"] == "eth0");
  for (const char* nonsense : {R"({"hosts":2,"line_bytes_per_s":null})", R"({"hosts":-1})",
                               R"({"hosts":1,"copies_bytes_per_s":[]})", R"({"hosts":9e99})"}) {
    files.limits = nonsense;
    CHECK(data_of(files)["bandwidth"][0]["limit"].is_null());
  }
}

TEST_CASE("report data: what cannot be read is left out and noted") {
  const json data =
      data_of({.job = "[1]",
               .events = std::string("nonsense\n") + kEvents + "{\"monotonic\":\"x\"}\n",
               .error = "{",
               .waiting = "{\"monotonic\":1}\n{\"monotonic\":1,\"seconds\":1,\"ranks\":[3]}"});
  CHECK(data["events"].size() == 7);
  CHECK(data["report"].is_null());
  CHECK(data["notes"].size() == 3);
  CHECK(data["job"]["program"] == "");
  CHECK(data["series"]["ranks"].empty());
}

TEST_CASE("report page: nothing that a program prints can end the page's script") {
  const std::string program = "</script><script>alert(1)";
  const std::string data = report_data({.job = json{{"program", program}}.dump()});
  CHECK(data.find('<') == std::string::npos);
  CHECK(json::parse(data)["job"]["program"] == program);
  const std::string page = report_page(data);
  CHECK(page.find(data) != std::string::npos);
  CHECK(page.find("@DATA@") == std::string::npos);
  CHECK(page.find("@SCRIPT@") == std::string::npos);
  CHECK(page.find("http://www.w3.org/2000/svg") != std::string::npos);  // a name, no address
  CHECK(page.find("src=") == std::string::npos);
}

}  // namespace
}  // namespace dlaunch

// Metrics: requests, counters, and the text.
#include <sys/un.h>

#include <limits>
#include <utility>

#include <asio/connect.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/write.hpp>
#include <doctest/doctest.h>

#include "base/socket.h"
#include "launcher/lead/metrics/http_request.h"
#include "launcher/lead/metrics/metrics_server.h"
#include "launcher/lead/metrics/metrics_text.h"
#include "tests/unit/launcher/hub_world.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const std::string kGetMetrics = "GET /metrics HTTP/1.1\r\nHost: x\r\n";

int http_status(const std::string& text) {
  const auto request = parse_http_request(text);
  return request ? request->status : 0;
}

JobStatus job_at_work() {
  JobStatus job{.now = TimePoint(1000s),
                .job_id = "a \"b\"",
                .host = "h1",
                .program = "./train",
                .state = JobState::active,
                .phase = JobPhase::running,
                .round = 3,
                .size = 2,
                .target_size = 2,
                .max_size = 4,
                .all_hosts = {{.node = 0, .name = "h1", .ranks = 1},
                              {.node = 1, .name = "h2", .ranks = 1, .drained = true}},
                .ran = 62s,
                .workers = {}};
  WorkerStatus first{.slot = 0,
                     .rank = 0,
                     .host = "h1",
                     .pid = 4711,
                     .up = true,
                     .state = "running",
                     .ran = 60s,
                     .operation = {}};
  first.figures.round = 3;
  first.figures.cpu = 30s;
  first.figures.memory = 3ULL << 29;
  first.figures.rate = {.operations = 10, .bytes = 5'000'000'000, .over = 5s};
  first.figures.gpus = {{.number = 2, .utilisation = 40, .memory_used = 7, .memory_total = 9}};
  job.workers.push_back(first);
  job.workers.push_back(
      {.slot = 1, .rank = 1, .host = "h2", .state = "starting", .ran = {}, .operation = {}});
  return job;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

std::string ask_server(asio::io_context& loop, UniqueFd client, const std::string& request) {
  std::string answer;
  bool ended = false;
  asio::posix::stream_descriptor socket(loop, client.release());
  asio::write(socket, asio::buffer(request));
  std::array<char, 4096> bytes;
  std::function<void()> read = [&] {
    socket.async_read_some(asio::buffer(bytes), [&](asio::error_code ec, std::size_t n) {
      answer.append(bytes.data(), n);
      ec ? void(ended = true) : read();
    });
  };
  read();
  turn_until(loop, [&] { return ended; });
  return answer;
}

}  // namespace

TEST_CASE("http: only GET and HEAD of /metrics, in one request of bounded size") {
  CHECK(http_status(kGetMetrics + "\r\n") == 200);
  CHECK(http_status(kGetMetrics) == 0);  // not complete
  CHECK(http_status("GET /metrics?a=b HTTP/1.0\r\n\r\n") == 200);
  CHECK(http_status("HEAD /metrics HTTP/1.1\r\n\r\n") == 200);
  CHECK(http_status("POST /metrics HTTP/1.1\r\n\r\n") == 405);
  CHECK(http_status("GET /metricsx HTTP/1.1\r\n\r\n") == 404);
  CHECK(http_status("GET / HTTP/1.1\r\n\r\n") == 404);
  for (const char* wrong : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n",
                            "GET /metrics HTTP/2.0\r\n\r\n", " /metrics HTTP/1.1\r\n\r\n"}) {
    CHECK_MESSAGE(http_status(wrong) == 400, wrong);
  }
  CHECK(http_status(std::string(kMaxHttpRequest, 'x')) == 0);
  CHECK(http_status(std::string(kMaxHttpRequest + 1, 'x')) == 431);
  CHECK(http_status(kGetMetrics + std::string(kMaxHttpRequest, 'x') + "\r\n\r\n") == 431);
  CHECK_FALSE(parse_http_request(kGetMetrics + "Accept: text/plain\r\n\r\n")->openmetrics);
  CHECK(
      parse_http_request(kGetMetrics + "aCCept: application/openmetrics-text;version=1.0.0\r\n\r\n")
          ->openmetrics);
  CHECK(http_answer({.status = 405}, "text/plain", "no") ==
        "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n"
        "Allow: GET, HEAD\r\nConnection: close\r\n\r\nno");
  CHECK(http_answer({.head = true}, "text/plain", "text").ends_with("\r\n\r\n"));
}

TEST_CASE("job counters: events and steps") {
  JobCounters counters;
  counters.take(JobEvent(job_event::Round{.round = 1, .size = 3, .without = {}}));
  counters.take(JobEvent(
      job_event::WorkerEnded{.how = job_event::Ending::failed, .kind = FailureKind::signal}));
  counters.take(JobEvent(job_event::WorkerEnded{.how = job_event::Ending::stopped}));
  counters.take(JobEvent(job_event::Restart{.reason = FailureKind::hung}));
  counters.take(JobEvent(job_event::Commit{.version = 9, .commits = 4}));
  CHECK((counters.rounds == 1 && counters.commits == 4 && counters.version == 9));
  CHECK(counters.failures == std::map<FailureKind, std::uint64_t>{{FailureKind::signal, 1}});
  CHECK(counters.restarts == std::map<FailureKind, std::uint64_t>{{FailureKind::hung, 1}});
  // Ranks 0 and 1 wait 30 ms and 20 ms for rank 2 in each of ten steps.
  StepTimes step{.steps = 10, .ranks = {{.late = 0}, {.late = 0.01}, {.late = 0.03}}, .links = {}};
  counters.take(step);
  counters.take(step);
  CHECK(counters.steps == 20);
  CHECK(counters.wait_of(0) == doctest::Approx(0.03));
  CHECK(counters.wait_of(2) == 0);
  CHECK_FALSE(counters.wait_of(3));
}

TEST_CASE("metrics: OpenMetrics, and the older format for those who do not ask for it") {
  JobCounters counters;
  counters.take(JobEvent(job_event::Restart{.reason = FailureKind::hung}));
  counters.take(
      StepTimes{.steps = 2, .ranks = {{.step = 0.5}, {.late = 0.25, .step = 0.75}}, .links = {}});
  JobStatus status = job_at_work();
  status.all_hosts.push_back({.node = 2, .name = ""});  // it has not come
  const std::string text = render_metrics(status, counters, MetricsForm::openmetrics);
  CHECK(text.find("host=\"\"") == std::string::npos);
  const std::string job = R"(job_id="a \"b\"")";
  for (const char* line : {"# TYPE dlaunch_job info", "# TYPE dlaunch_restarts counter",
                           "# TYPE dlaunch_worker_memory_bytes gauge"}) {
    CHECK_MESSAGE(has_line(text, line), line);
  }
  for (const char* sample :
       {"job_info{JOB,host=\"h1\",program=\"./train\"} 1", "job_state{JOB,state=\"running\"} 1",
        "job_state{JOB,state=\"failed\"} 0", "job_round{JOB} 3",
        "restarts_total{JOB,reason=\"hung\"} 1", "restarts_total{JOB,reason=\"signal\"} 0",
        "steps_total{JOB} 2", "rank_step_seconds{JOB,rank=\"1\"} 0.75",
        "host_ranks{JOB,host=\"h2\"} 1", "host_drained{JOB,host=\"h2\"} 1",
        "worker_up{JOB,rank=\"1\",host=\"h2\"} 0",
        "worker_cpu_seconds_total{JOB,rank=\"0\",host=\"h1\"} 30",
        "worker_operations_per_second{JOB,rank=\"0\",host=\"h1\"} 2",
        "gpu_utilization_ratio{JOB,rank=\"0\",host=\"h1\",gpu=\"2\"} 0.4",
        "gpu_memory_limit_bytes{JOB,rank=\"0\",host=\"h1\",gpu=\"2\"} 9"}) {
    std::string line = std::string("dlaunch_") + sample;
    line.replace(line.find("JOB"), 3, job);
    CHECK_MESSAGE(has_line(text, line), line);
  }
  // Unknown figures have no samples.
  CHECK(text.find("gpu_temperature_celsius{") == std::string::npos);
  CHECK(text.find("worker_cpu_seconds_total{" + job + ",rank=\"1\"") == std::string::npos);
  CHECK(text.ends_with("# EOF\n"));
  const std::string plain = render_metrics(job_at_work(), counters, MetricsForm::plain);
  CHECK(has_line(plain, "# TYPE dlaunch_restarts_total counter"));
  CHECK(has_line(plain, "# TYPE dlaunch_job_info gauge"));
  CHECK(plain.find("# EOF") == std::string::npos);
}

TEST_CASE("metrics: what the program reports of its progress") {
  JobStatus job = job_at_work();
  const std::string label = R"(job_id="a \"b\"")";
  CHECK(render_metrics(job, {}, MetricsForm::openmetrics).find("dlaunch_job_step") ==
        std::string::npos);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  job.pace = RunPace{.rank = 0,
                     .last = {.step = 1200, .total = 5000, .values = {{"loss", nan}, {"loss", 1}}},
                     .age = {},
                     .steps_per_s = 12.5,
                     .left = 304s};
  const std::string text = render_metrics(job, {}, MetricsForm::openmetrics);
  for (const char* sample :
       {"job_step{JOB} 1200", "job_steps_planned{JOB} 5000", "job_steps_per_second{JOB} 12.5",
        "job_left_seconds{JOB} 304", "job_value{JOB,name=\"loss\"} NaN"}) {
    std::string line = "dlaunch_" + std::string(sample);
    line.replace(line.find("JOB"), 3, label);
    CHECK_MESSAGE(has_line(text, line), line);
  }
  CHECK(text.find("job_value{" + label + ",name=\"loss\"} 1") == std::string::npos);
}

TEST_CASE("metrics: goodput by account, culprit and cause") {
  JobCounters counters;
  const auto text = [&] { return render_metrics(job_at_work(), counters, MetricsForm::plain); };
  counters.take(Goodput());
  CHECK(text().find("goodput_ratio") == std::string::npos);  // no rank has begun
  Goodput goodput;
  goodput.total = 20s;
  goodput.compute = 12s;
  goodput.transfer = 3s;
  goodput.ranks = {{.rank = 0,
                    .waits = {{.culprit = 1, .cause = WaitCause::gc, .time = 2s},
                              {.culprit = -1, .cause = WaitCause::compute, .time = 500ms}},
                    .recovery = {{1, 1s}},
                    .lost = {{1, 1500ms}}},
                   {.rank = 1, .waits = {}, .recovery = {}, .lost = {}}};
  goodput.costs = {{.rank = 1, .waits = {{WaitCause::gc, 2s}}, .recovery = 1s, .lost = 1500ms}};
  counters.take(goodput);
  for (const char* line :
       {R"(goodput_ratio{JOB} 0.75)", R"(rank_seconds_total{JOB,account="compute"} 12)",
        R"(rank_seconds_total{JOB,account="transfer"} 3)",
        R"(rank_seconds_total{JOB,account="start"} 0)",
        R"(rank_seconds_total{JOB,account="waiting",culprit="1",cause="gc"} 2)",
        R"(rank_seconds_total{JOB,account="waiting",culprit="other",cause="compute"} 0.5)",
        R"(rank_seconds_total{JOB,account="recovery",culprit="1"} 1)",
        R"(rank_seconds_total{JOB,account="lost_work",culprit="1"} 1.5)"}) {
    std::string sample = std::string("dlaunch_") + line;
    sample.replace(sample.find("JOB"), 3, R"(job_id="a \"b\"")");
    CHECK_MESSAGE(has_line(text(), sample), sample);
  }
}

TEST_CASE("goodput counters: never fall, and catch up with an account that has shrunk") {
  GoodputCounters counters;
  Goodput goodput;
  goodput.ranks = {{.rank = 0, .waits = {}, .recovery = {}, .lost = {}}};
  const auto compute = [&](Duration time) {
    goodput.total = goodput.compute = time;
    counters.take(goodput);
    return counters.counters.at({"compute", {}, {}});
  };
  CHECK(compute(10s) == 10s);
  goodput.ranks[0].lost = {{0, 4s}};
  CHECK(compute(6s) == 10s);
  CHECK(counters.counters.at({"lost_work", GoodputCounters::kOthers, {}}) == 4s);
  CHECK(compute(9s) == 10s);
  CHECK(compute(12s) == 12s);
}

TEST_CASE("goodput counters: their number is bounded, also in a job of thousands of ranks") {
  constexpr int kRanks = 5000;
  GoodputCounters counters;
  Goodput goodput;
  goodput.total = 1000s * kRanks;
  const auto costs = [&](int culprit, Duration time) {
    goodput.ranks[0].waits.push_back({.culprit = culprit, .cause = WaitCause::host, .time = time});
    goodput.costs.push_back({.rank = culprit, .waits = {{WaitCause::host, time}}});
  };
  goodput.ranks.resize(kRanks);
  costs(7, 5000s);  // 0.1 % of all
  for (int rank = 100; rank < 4100; ++rank) costs(rank, 1s);
  counters.take(goodput);
  const auto waits_for = [&](int culprit) {
    const auto found = counters.counters.find({"waiting", culprit, WaitCause::host});
    return found == counters.counters.end() ? Duration() : found->second;
  };
  CHECK(counters.counters.size() == 5);
  CHECK(waits_for(7) == 5000s);
  CHECK(waits_for(GoodputCounters::kOthers) == 4000s);
  // What a rank cost before it had counters of its own stays where it was.
  goodput.ranks[0].waits[1].time = goodput.costs[1].waits[WaitCause::host] = 6000s;
  counters.take(goodput);
  CHECK(waits_for(100) == 5999s);
  CHECK(waits_for(GoodputCounters::kOthers) == 4000s);
  // All of them at once.
  goodput.total = 500s;
  counters.take(goodput);
  CHECK(counters.counters.size() == 4 + GoodputCounters::kMostCulprits);
}

TEST_CASE("metrics: histograms of collectives, which add up over looks and rounds") {
  JobCounters counters;
  JobStatus job = job_at_work();
  TallySums tally{.kind = 3, .size = 1, .times = {1, 2}, .rates = {0, 3}, .ns = 5000, .bytes = 300};
  tally.times.resize(kTallyTimes);
  tally.rates.resize(kTallyRates);
  auto& figures = job.workers[0].figures;
  figures.tallies = {tally, {.kind = 99, .size = 1}};  // of another version
  counters.take(job);
  counters.take(job);  // nothing new
  figures.tallies[0].times[1] = 4;
  figures.tallies[0].ns = 9000;
  counters.take(job);
  figures.round = 4;  // begins with 0
  figures.tallies[0] = tally;
  counters.take(job);
  const std::string text = render_metrics(job, counters, MetricsForm::openmetrics);
  const std::string labels = R"({job_id="a \"b\"",kind="broadcast",size="256KiB")";
  for (const std::string& line :
       {"collective_seconds_bucket" + labels + R"(,le="4.096e-06"} 2)",
        "collective_seconds_bucket" + labels + R"(,le="1.6384e-05"} 8)",
        "collective_seconds_bucket" + labels + R"(,le="+Inf"} 8)",
        "collective_seconds_count" + labels + "} 8",
        "collective_seconds_sum" + labels + "} 1.4e-05",
        "collective_bytes_per_second_bucket" + labels + R"(,le="1048576"} 0)",
        "collective_bytes_per_second_bucket" + labels + R"(,le="+Inf"} 6)",
        "collective_bytes_total" + labels + "} 600"}) {
    CHECK_MESSAGE(has_line(text, "dlaunch_" + line), text);
  }
  CHECK(counters.tallies.size() == 1);
}

TEST_CASE("metrics: what a process did counts once, however many rounds the others are ahead") {
  JobCounters counters;
  JobStatus job = job_at_work();
  job.workers[1].pid = 4712;
  for (auto& worker : job.workers) {
    worker.figures.round = 1;
    worker.figures.tallies = {{.kind = 3, .size = 1, .times = {2}, .bytes = 300}};
  }
  const auto bytes = [&] { return counters.tallies.at({3, 1}).bytes; };
  for (job.round = 1; job.round < 5; ++job.round) {  // only the second one has started again
    counters.take(job);
    CHECK(bytes() == 300U * static_cast<unsigned>(1 + job.round));
    job.workers[1].figures.round = job.round + 1;
    ++job.workers[1].pid;
  }
  // The host of the first one does not answer.
  const auto figures = std::exchange(job.workers[0].figures, {});
  counters.take(job);
  job.workers[0].figures = figures;
  counters.take(job);
  CHECK(bytes() == 1800U);
}

TEST_CASE("metrics server: at a port and at a path, and not at one that is taken") {
  asio::io_context loop;
  const auto render = [](MetricsForm form, const MetricsServer::Done& done) {
    done(form == MetricsForm::openmetrics ? "open\n" : "plain\n");
  };
  auto tcp = MetricsServer::open(loop, "127.0.0.1:0", render);
  REQUIRE(tcp);
  const std::string where = (*tcp)->where();
  REQUIRE(where.starts_with("http://127.0.0.1:"));
  const std::string port = where.substr(17, where.rfind('/') - 17);
  asio::ip::tcp::socket client(loop);
  client.connect(
      {asio::ip::make_address("127.0.0.1"), static_cast<std::uint16_t>(std::stoi(port))});
  const std::string answer = ask_server(loop, UniqueFd(client.release()), kGetMetrics + "\r\n");
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
  CHECK(answer.ends_with("\r\n\r\nplain\n"));
  const auto taken = MetricsServer::open(loop, "127.0.0.1:" + port, render);
  REQUIRE_FALSE(taken);
  CHECK(taken.error().what ==
        "--metrics: listen on 127.0.0.1:" + port +
            ": Address already in use; another job or program has that address");

  TempFolder folder;
  const std::string path = folder.path / "m";
  { const auto killed = listen_unix_path(path, SOCK_STREAM); }  // leaves its socket
  auto local = MetricsServer::open(loop, "unix:" + path, render);
  REQUIRE(local);
  CHECK_FALSE(MetricsServer::open(loop, "unix:" + path, render));
  auto fd = connect_unix_path(path, SOCK_STREAM);
  REQUIRE(fd);
  CHECK(
      ask_server(loop, std::move(*fd), kGetMetrics + "Accept: application/openmetrics-text\r\n\r\n")
          .ends_with("open\n"));
  fd = connect_unix_path(path, SOCK_STREAM);
  REQUIRE(fd);
  CHECK(ask_server(loop, std::move(*fd), "DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  local->reset();
  CHECK_FALSE(connect_unix_path(path, SOCK_STREAM));
}

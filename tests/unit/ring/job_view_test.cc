#include "ring/links/job_view.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Variables = std::map<std::string, std::string>;

Environment env(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  };
}

Variables torchrun() {
  return {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
}

dl_options options(int rank = -1, int size = -1) {
  dl_options o;
  dl_options_init(&o);
  o.rank = rank;
  o.size = size;
  return o;
}

}  // namespace

TEST_CASE("torchrun's environment: rank 0 serves the store on MASTER_PORT") {
  auto job = resolve_job(nullptr, nullptr, env(torchrun()));
  REQUIRE(job);
  CHECK(job->rank == 2);
  CHECK(job->size == 4);
  CHECK(job->store_url == "tcp://h:29500");
  CHECK_FALSE(job->hosts_store);
  auto first = torchrun();
  first["RANK"] = "0";
  CHECK(resolve_job("env://", nullptr, env(first))->hosts_store);
}

TEST_CASE("a job may span hosts unless its ranks are known to be on one") {
  const auto spans = [](const char* url, Variables variables) {
    const auto job = resolve_job(url, nullptr, env(std::move(variables)));
    REQUIRE(job);
    return job->may_span_hosts;
  };
  auto several = torchrun(), one = torchrun(), alone = torchrun();
  several["LOCAL_WORLD_SIZE"] = "2";
  one["LOCAL_WORLD_SIZE"] = "4";
  alone["WORLD_SIZE"] = "1";
  alone["RANK"] = "0";
  CHECK_FALSE(spans("env://", torchrun()));  // MASTER_ADDR says nothing about that
  CHECK(spans("env://", several));
  CHECK_FALSE(spans("env://", one));
  CHECK(spans("tcp://h:1", torchrun()));
  CHECK(spans("tcp://h:1", several));
  CHECK_FALSE(spans("tcp://h:1", one));
  CHECK_FALSE(spans("tcp://h:1", alone));
  CHECK_FALSE(spans("file:///folder", several));
  several["DLAUNCH_RDZV"] = "tcp://h:1";
  CHECK_FALSE(spans("env://", several));
}

TEST_CASE("an empty variable counts as not set, as in dlaunch") {
  const char* const names[] = {"DLAUNCH_PORT_RANGE", "DLAUNCH_OP_TIMEOUT", "DLAUNCH_SOCKETS",
                               "DLAUNCH_WIRE_CODEC", "DLAUNCH_BACKEND"};
  for (const char* name : names) ::setenv(name, "", 1);
  const auto job = resolve_job("tcp://h:1", nullptr, [](const std::string& name) {
    return name == "RANK" ? "0" : name == "WORLD_SIZE" ? "1" : process_environment()(name);
  });
  for (const char* name : names) ::unsetenv(name);
  CHECK_MESSAGE(job, (job ? "" : job.error().what));
}

TEST_CASE("an IPv6 MASTER_ADDR may have brackets") {
  auto variables = torchrun();
  for (const char* address : {"fd77::1", "[fd77::1]"}) {
    variables["MASTER_ADDR"] = address;
    auto job = resolve_job(nullptr, nullptr, env(variables));
    REQUIRE(job);
    CHECK(job->store_url == "tcp://[fd77::1]:29500");
  }
}

TEST_CASE("dlaunch's environment: its own store, job, round and time-outs") {
  auto variables = torchrun();
  variables.insert({{"DLAUNCH_RDZV", "tcp://127.0.0.1:1"},
                    {"DLAUNCH_JOB_ID", "j"},
                    {"DLAUNCH_ROUND", "3"},
                    {"DLAUNCH_OP_TIMEOUT", "5m"},
                    {"DLAUNCH_LOCAL_CORES", "8"},
                    {"DLAUNCH_INTERFACE", "eth0"},
                    {"DLAUNCH_RACK", "s0.s1"},
                    {"DLAUNCH_PORT_RANGE", "29600-29700"},
                    {"DLAUNCH_LINK_TIMEOUT", "30"},
                    {"DLAUNCH_TRANSPORT", "tcp"},
                    {"DLAUNCH_VERIFY", "results"}});
  auto job = resolve_job(nullptr, nullptr, env(variables));
  REQUIRE(job);
  CHECK(job->verify == VerifyMode::results);
  CHECK(job->store_url == "tcp://127.0.0.1:1");
  CHECK(job->job_id == "j");
  CHECK(job->round == 3);
  CHECK(job->op_timeout == 5min);
  CHECK(job->local_cores == 8);
  CHECK(job->link_timeout == 30s);
  CHECK(job->interface == "eth0");
  CHECK(job->rack == "s0.s1");
  CHECK(job->ports == PortRange{29600, 29700});
  CHECK(job->transport == Transport::tcp);
  auto given = options();
  given.op_timeout_s = 0;
  given.transport = "shm";
  job = resolve_job(nullptr, &given, env(variables));
  CHECK(job->op_timeout < 0s);
  CHECK(job->transport == Transport::shm);
}

TEST_CASE("a time limit is a number of seconds") {
  for (const double wrong : {std::nan(""), HUGE_VAL, 1e10}) {
    auto given = options();
    given.op_timeout_s = wrong;
    const auto job = resolve_job(nullptr, &given, env(torchrun()));
    REQUIRE_FALSE(job);
    CHECK(job.error().what == "a time-out is out of range");
  }
  auto given = options();
  given.op_timeout_s = 1e-12;  // less than the clock can tell is not for ever
  CHECK(resolve_job(nullptr, &given, env(torchrun()))->op_timeout == 1ns);
  given.op_timeout_s = 0.3;
  CHECK(resolve_job(nullptr, &given, env(torchrun()))->op_timeout == 300ms);
}

TEST_CASE("tcp://host:port/NAME: the name keeps keys and connections apart") {
  const auto job = resolve_job("tcp://h:1/a-B_0.9", nullptr, env(torchrun()));
  REQUIRE(job);
  CHECK(job->store_url == "tcp://h:1");
  CHECK(job->key_space() == "r1@a-B_0.9");
  CHECK(job->link_id() == "default@a-B_0.9");
  CHECK(resolve_job("tcp://[::1]:1/x", nullptr, env(torchrun()))->store_url == "tcp://[::1]:1");
  const auto plain = resolve_job("tcp://h:1", nullptr, env(torchrun()));
  CHECK(plain->key_space() == "r1");
  CHECK(plain->link_id() == "default");

  for (const std::string& wrong : {std::string(), std::string("a/b"), std::string("a b"),
                                   std::string("\xc3\xa4"), std::string(65, 'a')}) {
    CAPTURE(wrong);
    const auto refused = resolve_job(("tcp://h:1/" + wrong).c_str(), nullptr, env(torchrun()));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::usage);
    CHECK(refused.error().what.find("the name of a world") != std::string::npos);
  }
}

TEST_CASE("reports of lost peers to the launcher have the ranks of the world without a name only") {
  auto variables = torchrun();
  variables["DLAUNCH_ROUND_DIR"] = "/folder";
  CHECK(resolve_job("tcp://h:1", nullptr, env(variables))->round_dir == "/folder");
  CHECK(resolve_job("tcp://h:1/x", nullptr, env(variables))->round_dir.empty());
}

TEST_CASE("without a launcher there is a world of one") {
  const auto job = resolve_job(nullptr, nullptr, env({}));
  REQUIRE(job);
  CHECK(job->size == 1);
  CHECK(job->store_url.empty());
}

TEST_CASE("a warning if another launcher has started several worlds of one") {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    CAPTURE(name);
    const auto warning = [&](Variables v, const char* size) {
      v[name] = size;
      const auto job = resolve_job(nullptr, nullptr, env(v));
      return job ? job->warning : job.error().what;
    };
    CHECK(warning({}, "4").starts_with(std::string(name) + " is 4, but RANK and WORLD_SIZE are"));
    CHECK(warning({}, "1").empty());
    CHECK(warning({}, "many").empty());
    CHECK(warning(torchrun(), "4").empty());
  }
  CHECK(resolve_job(nullptr, nullptr, env({{"SLURM_NTASKS", "4"}}))->warning.empty());
}

TEST_CASE("connections are encrypted if DLAUNCH_TLS is 1") {
  for (const auto& [word, tls] : {std::pair("1", true), {"0", false}, {"", false}}) {
    auto variables = torchrun();
    variables["DLAUNCH_SECRET_FILE"] = "/secret";
    variables["DLAUNCH_TLS"] = word;
    const auto job = resolve_job(nullptr, nullptr, env(variables));
    REQUIRE(job);
    CHECK(job->tls == tls);
  }
}

TEST_CASE("an impossible value is refused, with the name of its variable") {
  auto refused = [](const char* url, const dl_options* o, Variables v, const std::string& word) {
    const auto job = resolve_job(url, o, env(std::move(v)));
    REQUIRE_FALSE(job);
    CHECK(job.error().code == Errc::usage);
    CAPTURE(job.error().what);
    CHECK(job.error().what.find(word) != std::string::npos);
  };
  auto bad = torchrun();
  bad["RANK"] = "4";
  refused(nullptr, nullptr, bad, "RANK");
  bad = torchrun();
  bad.erase("WORLD_SIZE");
  refused(nullptr, nullptr, bad, "WORLD_SIZE");
  bad = torchrun();
  bad.erase("RANK");
  refused(nullptr, nullptr, bad, "RANK is not set");
  const auto sized = options(-1, 4);
  refused(nullptr, &sized, {}, "RANK is not set");
  for (const char* size : {"", "1"}) {
    bad["WORLD_SIZE"] = size;
    CHECK(resolve_job(nullptr, nullptr, env(bad)));
  }
  bad = torchrun();
  bad.erase("MASTER_PORT");
  refused(nullptr, nullptr, bad, "MASTER_PORT");
  bad = torchrun();
  bad["DLAUNCH_TRANSPORT"] = "pigeon";
  refused(nullptr, nullptr, bad, "pigeon");
  bad = torchrun();
  bad["DLAUNCH_VERIFY"] = "often";
  refused(nullptr, nullptr, bad, "DLAUNCH_VERIFY");
  for (const char* ports : {"", "a-b", "5-3", "0-7", "1-65536", "3-", "-3"}) {
    bad = torchrun();
    bad["DLAUNCH_PORT_RANGE"] = ports;
    refused(nullptr, nullptr, bad, "DLAUNCH_PORT_RANGE");
  }
  for (const char* tls : {"yes", "no", "01", "1"}) {  // and 1 without a secret
    bad = torchrun();
    bad["DLAUNCH_TLS"] = tls;
    refused(nullptr, nullptr, bad, "DLAUNCH_TLS");
  }
  bad = torchrun();
  bad["DLAUNCH_DEBUG"] = "all";
  refused(nullptr, nullptr, bad, "DLAUNCH_DEBUG");
  bad = torchrun();
  bad["DLAUNCH_LINK_TIMEOUT"] = "1s";
  refused(nullptr, nullptr, bad, "DLAUNCH_LINK_TIMEOUT");
  refused("http://x", nullptr, torchrun(), "http://x");
  refused("file:///x", nullptr, {}, "WORLD_SIZE");
  const auto out_of_range = options(4, 4);
  refused("file:///x", &out_of_range, {}, "RANK");
  auto not_set_up = options(0, 2);
  not_set_up.struct_size = 3;
  refused("file:///x", &not_set_up, {}, "dl_options_init");
}

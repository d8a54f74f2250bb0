#include "cli/doctor/doctor.h"

#include <set>

#include <doctest/doctest.h>

#include "cli/doctor/findings.h"
#include "cli/doctor/findings_json.h"
#include "cli/doctor/host_facts.h"
#include "cli/doctor/sites.h"

using namespace dlaunch;

namespace {

HostFacts healthy(const std::string& name) {
  HostFacts host;
  host.host = name;
  host.address = "10.0.0.1";
  host.interface = "eth0";
  host.mtu = 1500;
  host.cpus = 16;
  host.load = 0.1;
  host.memory = 64ULL << 30;
  host.memory_free = 60ULL << 30;
  host.open_files = 1 << 20;
  host.locked_memory = ~0ULL;
  host.shared_memory = 32ULL << 30;
  host.send_buffer = host.recv_buffer = 6 << 20;
  host.huge_pages = "madvise";
  return host;
}

struct Cluster {
  explicit Cluster(int size) {
    for (int i = 0; i < size; ++i) hosts.push_back(healthy("h" + std::to_string(i)));
    for (const auto& round : pair_rounds(size)) {
      for (const auto& [a, b] : round) pairs.push_back({a, b, 1e-4, 1e9, 1e9});
    }
  }
  // What is found: "!" for a problem.
  std::vector<std::string> found() const {
    std::vector<std::string> words;
    for (const auto& finding : examine(hosts, pairs)) {
      CHECK_FALSE(finding.fix.empty());
      words.push_back((finding.bad ? "!" : "") + finding.what);
    }
    return words;
  }
  std::vector<HostFacts> hosts;
  std::vector<PairFacts> pairs;
};

bool only(const std::vector<std::string>& found, const std::string& begins) {
  INFO((found.empty() ? std::string("nothing") : found.front()));
  return found.size() == 1 && found.front().starts_with(begins);
}

}  // namespace

TEST_CASE("each pair of hosts is measured once, and none with two at a time") {
  for (int hosts = 0; hosts <= 40; ++hosts) {
    std::set<std::pair<int, int>> seen;
    for (const auto& round : pair_rounds(hosts)) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        CHECK((0 <= a && a < b && b < hosts));
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        CHECK(seen.emplace(a, b).second);
      }
    }
    CHECK(static_cast<int>(seen.size()) == hosts * (hosts - 1) / 2);
  }
  CHECK(pair_rounds(100).size() == 99);
}

TEST_CASE("healthy hosts have no findings") {
  for (const int size : {1, 2, 3, 12}) CHECK(Cluster(size).found().empty());
}

TEST_CASE("a slow pair, and a host that is slow with all") {
  Cluster cluster(4);
  cluster.pairs[0].bytes_per_s_back = 2e8;
  CHECK(only(cluster.found(), "!h0 and h1: 1 GB/s and 200 MB/s back; the median pair has 1 GB/s"));
  for (auto& pair : cluster.pairs) {
    pair.bytes_per_s_back = pair.a == 2 || pair.b == 2 ? 1e8 : 1e9;
  }
  CHECK(only(cluster.found(), "!h2: 100 MB/s at best to any other host"));
}

TEST_CASE("hosts that are far apart, and sockets too small for that") {
  Cluster cluster(4);
  for (auto& host : cluster.hosts) host.send_buffer = host.recv_buffer = 64 << 20;
  cluster.pairs[5].round_trip_s = 0.04;
  CHECK(only(cluster.found(), "h2 and h3 are far apart: a round trip of 40 ms"));
  cluster.hosts[3].recv_buffer = 4 << 20;
  const auto found = cluster.found();
  REQUIRE(found.size() == 2);
  CHECK(found[0].starts_with("h2 to h3: at that speed and distance 38.15 MiB are in flight"));
}

TEST_CASE("hosts with long round trips between them are sites") {
  Cluster cluster(5);
  CHECK(sites_of(5, cluster.pairs) == std::vector<std::vector<int>>{{0, 1, 2, 3, 4}});
  CHECK(sites_text(cluster.hosts, cluster.pairs).empty());
  const auto site_of = [](int host) { return host == 1 || host == 4 ? 1 : host == 3 ? 2 : 0; };
  for (auto& pair : cluster.pairs) {
    if (site_of(pair.a) != site_of(pair.b)) pair.round_trip_s = pair.b == 3 ? 0.09 : 0.04;
  }
  CHECK(sites_of(5, cluster.pairs) == std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}});
  const auto text = sites_text(cluster.hosts, cluster.pairs);
  CHECK(text.find("These are 3 sites, with round trips of 40 ms to 90 ms") != std::string::npos);
  const auto list = text.substr(text.find("site1"));
  CHECK(list == "site1 h0:29600  # h0 h2\nsite2 h1:29600  # h1 h4\nsite3 h3:29600  # h3\n");
  // A chain of short lines joins hosts.
  for (auto& pair : cluster.pairs) {
    if (pair.a == 0 && pair.b == 1) pair.round_trip_s = 0.0049;
  }
  CHECK(sites_of(5, cluster.pairs) == std::vector<std::vector<int>>{{0, 1, 2, 4}, {3}});
  const auto json = json_report_of(cluster.hosts, cluster.pairs, {});
  CHECK(json.find("\"sites\": [\n    [\n      \"h0\",\n      \"h1\"") != std::string::npos);
}

TEST_CASE("hosts whose pairs could not be measured are no sites") {
  const Cluster cluster(3);
  CHECK(sites_of(3, {}) == std::vector<std::vector<int>>{{0, 1, 2}});
  const auto text = report_of(cluster.hosts, {}, {{.bad = true, .what = "w", .fix = "f"}});
  CHECK(text.find("sites") == std::string::npos);
  CHECK(text.ends_with("1 problem, 0 warnings\n"));
}

TEST_CASE("one finding names all hosts with the same fault") {
  Cluster cluster(6);
  SUBCASE("clock") {
    cluster.hosts[4].clock_ahead_s = -3;
    CHECK(only(cluster.found(), "h4: its clock is 3 s behind that of h0"));
    cluster.hosts[4].clock_error_s = 2.5;
    CHECK(cluster.found().empty());
  }
  SUBCASE("files") {
    for (auto& host : cluster.hosts) host.open_files = 1024;
    CHECK(only(cluster.found(), "!h0, h1, h2, h3 and 2 more: a process may open 1024 files"));
  }
  SUBCASE("memory") {
    cluster.hosts[1].memory_free = 1ULL << 30;
    CHECK(only(cluster.found(), "!h1: 1 GiB of 64 GiB of memory are free"));
  }
  SUBCASE("shared memory") {
    cluster.hosts[1].shared_memory = 64 << 20;
    CHECK(only(cluster.found(), "h1: /dev/shm has 64 MiB"));
  }
  SUBCASE("others' work") {
    cluster.hosts[5].load = 12;
    CHECK(only(cluster.found(), "h5: other programs are running there"));
  }
  SUBCASE("quota") {
    cluster.hosts[5].cpu_quota = 2.5;
    CHECK(only(cluster.found(), "h5: it has 16 CPUs, and a quota for 2.5 of them"));
  }
  SUBCASE("name") {
    cluster.hosts[0].named_loopback = true;
    CHECK(only(cluster.found(), "h0: its own name has no address"));
  }
  SUBCASE("locked memory") {
    cluster.hosts[0].locked_memory = 8 << 20;
    CHECK(cluster.found().empty());
    cluster.hosts[0].infiniband = true;
    CHECK(only(cluster.found(), "h0: it has InfiniBand, but a process may lock only 8 MiB"));
  }
}

TEST_CASE("differences between hosts") {
  Cluster cluster(3);
  SUBCASE("MTU") {
    cluster.hosts[2].mtu = 9000;
    CHECK(only(cluster.found(), "!the MTU differs: 1500 (h0, h1), 9000 (h2)"));
    cluster.hosts[2].mtu = 0;
    CHECK(cluster.found().empty());
  }
  SUBCASE("CPUs") {
    cluster.hosts[2].cpus = 4;
    CHECK(only(cluster.found(), "the number of CPUs differs: 16 (h0, h1), 4 (h2)"));
  }
  SUBCASE("GPUs") {
    for (auto& host : cluster.hosts) host.gpus = 8;
    cluster.hosts[0].gpus = 7;
    CHECK(only(cluster.found(), "the number of GPUs differs: 7 (h0), 8 (h1, h2)"));
    cluster.hosts[0].gpus = 8;
    for (auto& host : cluster.hosts) host.gpu_driver = "580.1";
    cluster.hosts[1].gpu_driver = "570.9";
    CHECK(only(cluster.found(), "!the GPU driver differs: 570.9 (h1), 580.1 (h0, h2)"));
  }
}

TEST_CASE("a host's facts are read as they were written, or refused") {
  HostFacts host = healthy("a");
  host.cpu_quota = 2.5;
  host.infiniband = host.named_loopback = true;
  host.gpus = 3;
  host.gpu_driver = "580.1";
  const std::string bytes = encode(host);
  const auto back = decode_host_facts(bytes);
  REQUIRE(back);
  CHECK(encode(*back) == bytes);
  CHECK(back->gpu_driver == "580.1");
  CHECK(back->cpu_quota == 2.5);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_host_facts(bytes.substr(0, size)));
  }
  CHECK_FALSE(decode_host_facts(bytes + "x"));
}

TEST_CASE("this host") {
  const HostFacts here = find_host_facts("");
  CHECK_FALSE(here.host.empty());
  CHECK(here.cpus > 0);
  CHECK(here.memory >= here.memory_free);
  CHECK(here.memory_free > 0);
  CHECK(here.open_files > 0);
  const auto text = report_of({here}, {}, examine({here}, {}));
  CHECK(text.find(here.host) != text.npos);
  CHECK(text.find(" problem") != text.npos);
}

TEST_CASE("options go to the job that looks at the hosts") {
  const auto words = doctor_words({"--hosts", "a,b"});
  REQUIRE(words.size() == 7);
  CHECK(words[2] == "--hosts");
  CHECK(words[5] == "/proc/self/exe");
  CHECK(words[6] == kDoctorWorkerWord);
}

TEST_CASE("the doctor ignores options about output, failures and the program") {
  const auto options = read_options(
      doctor_words({"--hosts", "a,b", "--log-dir", "logs", "--timestamps", "--output", "files",
                    "--max-restarts", "3", "--chaos", "kill=1", "--timeout", "60", "-m"}));
  REQUIRE(options);
  const Options kept = doctor_options(*options);
  CHECK((*kept.hosts == "a,b" && *kept.timeout == "60" && *kept.output == "raw"));
  CHECK((!kept.log_dir && !kept.timestamps && !kept.max_restarts && !kept.chaos && !kept.module));
  CHECK(kept.program == options->program);
}

TEST_CASE("the JSON report has the contents of the text, and null for unknown values") {
  Cluster two(2);
  two.hosts[0].mtu = 0;
  two.hosts[0].started_s = -1;
  two.hosts[1].host = "h\xff";
  const std::string text =
      json_report_of(two.hosts, two.pairs, {{true, "slow", "mend it"}, {false, "odd", "look"}});
  const auto has = [&](const std::string& piece) {
    CHECK_MESSAGE(text.find(piece) != std::string::npos, piece);
  };
  has("\"format\": 1");
  has("\"problems\": 1");
  has("\"warnings\": 1");
  has("\"severity\": \"problem\"");
  has("\"fix\": \"mend it\"");
  has("\"mtu\": null");
  has("\"started_s\": null");
  has("\"from\": \"h0\"");
  has("\"round_trip_s\": 0.0001");
  CHECK(text.ends_with("}\n"));
}

// The process that looks for the leader where hosts meet by etcd.
#include "launcher/agent/campaign.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "tests/unit/rendezvous/fake_etcd.h"

namespace dlaunch {
namespace {

const FakeEtcd::Reply kForbidden{403, R"({"code":7,"message":"etcdserver: permission denied"})"};
// Its value is "n h:1".
const FakeEtcd::Reply kLeader{200, R"({"header":{"revision":"7"},"responses":[{"response_range":{)"
                                   R"("kvs":[{"value":"biBoOjE=","create_revision":"5"}]}}]})"};

// What the process says until one of its lines begins with this word.
std::string heard_until(const CampaignProcess& process, const std::string& word) {
  const auto until = steady_now() + std::chrono::seconds(20);
  std::string heard = "\n";
  while (heard.find("\n" + word + " ") == heard.npos) {
    pollfd readable{process.from.get(), POLLIN, 0};
    if (::poll(&readable, 1, poll_timeout_ms(steady_now(), until)) <= 0) break;
    char bytes[4096];
    const ssize_t n = ::read(process.from.get(), bytes, sizeof bytes);
    if (n <= 0) break;
    heard.append(bytes, static_cast<std::size_t>(n));
  }
  return heard;
}

// A campaign at a fake etcd, which answers once the process is there.
std::string first_words(const FakeEtcd::Answer& answer, const std::string& word) {
  FakeEtcd server;
  Plan plan;
  plan.job_id = "j";
  auto access = etcd_access(server.url(), {});
  REQUIRE(access);
  plan.nodes.etcd = std::move(*access);
  auto process = start_campaign(plan, {});
  REQUIRE(process);
  server.serve(answer);
  const auto heard = heard_until(*process, word);
  process->to.reset();
  ::waitpid(process->pid, nullptr, 0);
  return heard;
}

TEST_CASE("campaign: a refusal is final at the start, and not where the hosts have met" *
          doctest::skip(!has_http())) {
  const auto at_start = first_words([](const std::string&) { return kForbidden; }, "never");
  CHECK(at_start.find("never etcd ") != at_start.npos);
  const auto later = first_words(
      [found = false](const std::string&) mutable {
        return std::exchange(found, true) ? kForbidden : kLeader;
      },
      "nobody");
  CHECK(later.starts_with("\nleader 5 h:1\nnobody etcd "));
  CHECK(later.find("never") == later.npos);
}

}  // namespace
}  // namespace dlaunch

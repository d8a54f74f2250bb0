#include "cli/plan_kubernetes.h"

#include <map>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

struct Pod {
  std::string index, hostname, full_name;
  std::string group_index = {}, leader = {};  // of a LeaderWorkerSet
};

// "RANK at RDZV", or the refusal.
std::string found(const Pod& pod, Options options) {
  const auto env = [&](const std::string& name) -> std::optional<std::string> {
    const std::map<std::string, std::string> said = {{"JOB_COMPLETION_INDEX", pod.index},
                                                     {"LWS_WORKER_INDEX", pod.group_index},
                                                     {"LWS_LEADER_ADDRESS", pod.leader}};
    const auto value = said.find(name);
    return value == said.end() || value->second.empty() ? std::nullopt
                                                        : std::optional(value->second);
  };
  const auto taken = apply_kubernetes(env, pod.hostname, pod.full_name, options);
  if (!taken) return taken.error().what;
  if (!*taken) return "no";
  const auto value = [](const Text& text) { return text ? *text : "-"; };
  return value(options.node_rank) + " at " + value(options.rdzv);
}

Options nodes(const char* number) {
  Options options;
  options.nnodes = {number, "--nnodes"};
  return options;
}

const Pod kThird = {"2", "train-2", "train-2.train.default.svc.cluster.local"};

}  // namespace

TEST_CASE("a pod's number is its rank, and its name gives the name of the first pod") {
  CHECK(found(kThird, nodes("4")) == "2 at tcp://train-0.train.default.svc.cluster.local:29400");
  CHECK(found({"0", "train-0", "train-0.train.default.svc.cluster.local"}, nodes("4")) ==
        "0 at tcp://train-0:29400");
  CHECK(found({"12", "a-node-0-12", "a-node-0-12.a.ns.svc"}, nodes("16")) ==
        "12 at tcp://a-node-0-0.a.ns.svc:29400");
}

TEST_CASE("a pod of a LeaderWorkerSet reads the leader from its variables") {
  const Pod leader = {"", "serve-0", "serve-0.serve.ns.svc", "0", "serve-0.serve.ns"};
  CHECK(found(leader, nodes("3")) == "0 at tcp://serve-0:29400");
  const Pod worker = {"", "serve-0-2", "serve-0-2.serve.ns.svc", "2", "serve-0.serve.ns"};
  CHECK(found(worker, nodes("3")) == "2 at tcp://serve-0.serve.ns:29400");
  CHECK(found(worker, {}) == "no");
  CHECK(found({"", "serve-0-2", "serve-0-2", "2", ""}, nodes("3")) ==
        "LWS_WORKER_INDEX is 2, but LWS_LEADER_ADDRESS is not set; say --rdzv");
}

TEST_CASE("an error says what a pod without a Service's name lacks") {
  for (const Pod& pod : {Pod{"2", "train-2", "train-2"}, Pod{"2", "node7", "node7.example.org"},
                         Pod{"2", "train-12", "train-12x.train.svc"}, Pod{"2", "", ""}}) {
    const std::string said = found(pod, nodes("4"));
    CHECK(said.starts_with("JOB_COMPLETION_INDEX is 2, but this pod's name '" + pod.full_name));
    CHECK(said.ends_with("or say --rdzv"));
  }
  CHECK(found({"x", "t-x", "t-x.t"}, nodes("4")).starts_with("JOB_COMPLETION_INDEX: 'x'"));
}

TEST_CASE("options override the environment") {
  CHECK(found(kThird, {}) == "no");  // each pod a job of its own
  CHECK(found(kThird, nodes("1")) == "no");
  CHECK(found({"", "train-2", "train-2.train"}, nodes("4")) == "no");
  Options options = nodes("4");
  options.rdzv = {"tcp://a:1", "--rdzv"};
  CHECK(found(kThird, options) == "2 at tcp://a:1");
  CHECK(found({"2", "node7", "node7"}, options) == "2 at tcp://a:1");
  options = nodes("4");
  options.node_rank = {"1", "--node-rank"};
  CHECK(found(kThird, options).starts_with("1 at tcp://train-0."));
  options = nodes("4");
  options.hosts = {"a,b", "--hosts"};
  CHECK(found(kThird, options) == "no");
  options = nodes("4");
  options.standalone = {true, "--standalone"};
  CHECK(found(kThird, options) == "no");
}

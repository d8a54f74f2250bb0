#include "cli/plan_slurm.h"

#include <map>
#include <set>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

Environment environment(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

SlurmAllocation place(const Variables& variables) {
  auto found = read_slurm(environment(variables));
  REQUIRE_MESSAGE(found, (found ? "" : found.error().what));
  REQUIRE(*found);
  return **found;
}

std::string step_refused(const Variables& variables) {
  auto found = read_slurm(environment(variables));
  return found ? "accepted" : found.error().what;
}

// With others of a real one left out: srun -N2 --ntasks-per-node=1, on its second node.
const Variables kStep = {{"SLURMD_NODENAME", "host2"},
                         {"SLURM_CPUS_ON_NODE", "4"},
                         {"SLURM_JOB_ID", "1"},
                         {"SLURM_JOB_NODELIST", "host[1-2]"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_PROCID", "1"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NODELIST", "host[1-2]"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_TASKS_PER_NODE", "1(x2)"}};

// sbatch -N3 -n5, on the first node.
const Variables kBatch = {{"SLURMD_NODENAME", "host1"},
                          {"SLURM_CPUS_ON_NODE", "3"},
                          {"SLURM_JOB_CPUS_PER_NODE", "3,1(x2)"},
                          {"SLURM_JOB_ID", "3"},
                          {"SLURM_JOB_NODELIST", "host[1-3]"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_TASKS_PER_NODE", "3,1(x2)"}};

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

Options applied(const Variables& variables, Options options = {}) {
  if (left_to_scheduler(options)) apply_slurm(place(variables), options);
  return options;
}

std::string value(const Text& option) { return option ? *option : "-"; }

}  // namespace

TEST_CASE("task counts: one for each node") {
  CHECK(*parse_slurm_counts("2(x3),1") == std::vector{2, 2, 2, 1});
  CHECK(*parse_slurm_counts("4") == std::vector{4});
  CHECK(*parse_slurm_counts("0,16(x2)") == std::vector{0, 16, 16});
  for (const char* bad : {"x", "2(x0)", "2(x", "-1", "2(x3", "1,,x", "2(x70000)", "9999999999"}) {
    CHECK_FALSE(parse_slurm_counts(bad));
  }
}

TEST_CASE("the remaining time is read as squeue writes it") {
  using namespace std::chrono;
  CHECK(parse_slurm_time_left("4:58\n") == minutes(4) + seconds(58));
  CHECK(parse_slurm_time_left("1-02:03:04") == hours(26) + minutes(3) + seconds(4));
  CHECK(parse_slurm_time_left("23:00:00 ") == hours(23));
  CHECK(parse_slurm_time_left("0:00") == seconds(0));
  for (const char* none : {"UNLIMITED", "NOT_SET", "INVALID", "", "-", "1-", "1:2:3:4", "a:b"}) {
    CHECK_FALSE(parse_slurm_time_left(none));
  }
}

TEST_CASE("without Slurm there is no place, and a broken environment is refused") {
  const auto none = read_slurm(environment({{"HOME", "/"}}));
  REQUIRE(none);
  CHECK_FALSE(*none);
  CHECK_FALSE(*read_slurm(environment({{"SLURM_JOB_ID", "1"}})));
  CHECK(step_refused(with(kStep, {{"SLURM_NODEID", "2"}})) ==
        "Slurm: SLURM_NODEID 2 does not number one of the 2 nodes in SLURM_STEP_NODELIST");
  CHECK(step_refused(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}})) ==
        "Slurm: SLURM_STEP_TASKS_PER_NODE is '1(x3)', which does not fit 2 nodes");
  CHECK(step_refused(with(kStep, {{"SLURM_STEP_NODELIST", "host[1-"}}))
            .starts_with("SLURM_STEP_NODEL"));
  CHECK(step_refused(with(kStep, {{"SLURM_STEP_NODELIST", ""}})).find("is not set") !=
        std::string::npos);
  CHECK(step_refused(with(kBatch, {{"SLURM_TASKS_PER_NODE", "many"}})).find("'many'") !=
        std::string::npos);
}

TEST_CASE("a step: one of its nodes leads, and all know where") {
  const SlurmAllocation second = place(kStep);
  CHECK(second.step);
  CHECK(second.nodes == Words{"host1", "host2"});
  CHECK((second.number == 1 && second.cpus_here == 4));
  CHECK(second.name == "slurm-1.0");
  const SlurmAllocation first = place(with(kStep, {{"SLURM_NODEID", "0"}}));
  CHECK(first.port == second.port);
  CHECK(first.name == second.name);

  const Options options = applied(kStep);
  CHECK(value(options.nnodes) == "2");
  CHECK(value(options.node_rank) == "1");
  CHECK(value(options.rdzv) == "tcp://host1:" + std::to_string(second.port));
  CHECK(value(options.job_id) == "slurm-1.0");
  CHECK(value(options.nproc) == "-");
  CHECK(options.rdzv.source == "SLURM_STEP_NODELIST");
}

TEST_CASE("a step: node lists in the forms of real clusters") {
  const auto nodes = [](const char* list, const char* tasks) {
    return place(with(kStep, {{"SLURM_STEP_NODELIST", list},
                              {"SLURM_STEP_TASKS_PER_NODE", tasks},
                              {"SLURM_NODEID", "0"}}))
        .nodes;
  };
  CHECK(nodes("node[01-03,7]", "1(x4)") == Words{"node01", "node02", "node03", "node7"});
  CHECK(nodes("gpu5,r1n[098-101]", "1(x5)") ==
        Words{"gpu5", "r1n098", "r1n099", "r1n100", "r1n101"});
  CHECK(nodes("r[1-2]n[1-2]-ib", "1(x4)") == Words{"r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"});
  CHECK(nodes("lonely", "1") == Words{"lonely"});
}

TEST_CASE("a step on one node is a job on one host, with its number as its name") {
  const Options options = applied(with(kStep, {{"SLURM_STEP_NODELIST", "host2"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                               {"SLURM_NODEID", "0"}}));
  CHECK(value(options.nnodes) == "-");
  CHECK(value(options.rdzv) == "-");
  CHECK(value(options.job_id) == "slurm-1.0");
}

TEST_CASE("a step with several dlaunch on a node says what to do") {
  const std::string said = step_refused(with(kStep, {{"SLURM_STEP_TASKS_PER_NODE", "1,8"}}));
  CHECK(said.starts_with("Slurm started 8 dlaunch on host2, and each node needs one"));
  CHECK(said.find("srun --ntasks-per-node=1 --cpus-per-task=CPUS dlaunch --nproc 8") !=
        std::string::npos);
}

TEST_CASE("a step of a heterogeneous job spans its parts") {
  // salloc -N1 -n1 : -N1 -n1, srun --het-group=0,1
  const SlurmAllocation found = place(with(kStep, {{"SLURM_HET_SIZE", "2"},
                                                   {"SLURM_JOB_NODELIST_HET_GROUP_0", "host1"},
                                                   {"SLURM_JOB_NODELIST_HET_GROUP_1", "host2"},
                                                   {"SLURM_STEP_TASKS_PER_NODE", "1,1"}}));
  CHECK(found.nodes == Words{"host1", "host2"});
  CHECK(found.number == 1);
  CHECK(step_refused({{"SLURM_JOB_ID", "6"}, {"SLURM_HET_SIZE", "2"}}).find("--het-group=0,1") !=
        std::string::npos);
}

TEST_CASE("ports: below the kernel's own, another for each step, or those that Slurm keeps") {
  std::set<std::uint16_t> seen;
  for (int job = 1; job <= 3000; job += 7) {
    for (int step = 0; step < 7; ++step) {
      const auto at = place(with(
          kStep, {{"SLURM_JOB_ID", std::to_string(job)}, {"SLURM_STEP_ID", std::to_string(step)}}));
      CHECK((at.port >= kSlurmPorts && at.port < 32768));
      if (job < 201) CHECK(seen.insert(at.port).second);
    }
  }
  CHECK(place(with(kStep, {{"SLURM_JOB_ID", "2000000000"}})).port >= kSlurmPorts);
  CHECK(place(with(kStep, {{"SLURM_STEP_RESV_PORTS", "12000-12001"}})).port == 12000);
  CHECK(place(with(kStep, {{"SLURM_STEP_RESV_PORTS", "12005"}})).port == 12005);
}

TEST_CASE("a requeued job refuses processes of its earlier run") {
  CHECK(place(with(kStep, {{"SLURM_RESTART_COUNT", "0"}})).name == "slurm-1.0");
  CHECK(place(with(kStep, {{"SLURM_RESTART_COUNT", "2"}})).name == "slurm-1.0-r2");
  CHECK(place(with(kBatch, {{"SLURM_RESTART_COUNT", "2"}})).requeued == 2);
  CHECK(place(kBatch).requeued == 0);
  CHECK(step_refused(with(kStep, {{"SLURM_RESTART_COUNT", "x"}}))
            .starts_with("Slurm: SLURM_RESTART_COUNT: 'x'"));
}

TEST_CASE("an allocation: its nodes with their tasks, in a batch script and in salloc's shell") {
  const SlurmAllocation batch = place(kBatch);
  CHECK_FALSE(batch.step);
  CHECK(batch.nodes == Words{"host1", "host2", "host3"});
  CHECK(batch.cpus == std::vector{3, 1, 1});
  CHECK(batch.here == "host1");
  CHECK(value(applied(kBatch).hosts) == "host1:3,host2:1,host3:1");
  CHECK(value(applied(kBatch).nnodes) == "-");
  for (const char* no_step : {"4294967290", "4294967291", "4294967292"}) {
    CHECK_FALSE(place(with(kBatch, {{"SLURM_STEP_ID", no_step}})).step);
  }
  CHECK(value(applied(with(kBatch, {{"SLURM_TASKS_PER_NODE", "2,0,1"}})).hosts) ==
        "host1:2,host3:1");
}

TEST_CASE("options override the environment") {
  Options options;
  options.rdzv = {"tcp://other:1", "--rdzv"};
  options.job_id = {"mine", "--job-id"};
  const Options step = applied(kStep, options);
  CHECK(value(step.rdzv) == "tcp://other:1");
  CHECK(value(step.job_id) == "mine");
  CHECK(value(step.nnodes) == "2");
  CHECK(value(applied(kBatch, options).hosts) == "-");

  options = {};
  options.nnodes = {"2:4", "--nnodes"};
  CHECK(value(applied(kStep, options).nnodes) == "2:4");
  options.nnodes = {"1", "--nnodes"};
  CHECK(value(applied(kStep, options).rdzv) == "-");
  options = {};
  options.standalone = {true, "--standalone"};
  CHECK(value(applied(kStep, options).job_id) == "-");
  options = {};
  options.master_addr = {"a", "--master-addr"};
  CHECK(value(applied(kStep, options).rdzv) == "-");
  options = {};
  options.hosts = {"a,b", "--hosts"};
  CHECK(value(applied(kBatch, options).hosts) == "a,b");
}

#include "cli/plan_builder.h"

#include <signal.h>

#include <map>
#include <set>

#include <doctest/doctest.h>

#include "cli/ssh_order.h"
#include "tests/unit/cli/scoped_env.h"

using namespace dlaunch;

namespace {

using Words = std::vector<std::string>;

// Eight CPUs on two sockets, files and variables as the test says.
struct FakeMachine {
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> files;
  std::map<std::string, FileKind> kinds;
  std::string topology = "package:2 numa:1 l3:2 core:2 pu:1";
  UsableCpus cpus{8, 0};
  std::vector<GpuFiles> gpus;
  std::vector<Hca> hcas;
  bool terminal = false;
  int topology_asked = 0;
  std::map<std::string, int> resolved;  // how often
  std::optional<Duration> time_left;    // of a Slurm job

  Machine machine() {
    Machine m;
    m.cpus = cpus;
    m.hostname = "here";
    m.stdout_is_terminal = m.stderr_is_terminal = terminal;
    m.topology = [this] {
      ++topology_asked;
      return synthetic_topology(topology);
    };
    m.gpus = [this] { return gpus; };
    m.hcas = [this] { return hcas; };
    m.local_address = [this](const std::string& host) -> Result<std::string> {
      ++resolved[host];
      if (host == "here") return std::string("10.0.0.1");
      if (host == "localhost" || host == "127.0.0.1") return std::string("127.0.0.1");
      if (host == "::1") return host;
      return Error{.what = "another machine"};
    };
    m.read_file = [this](const std::string& path) -> Result<std::string> {
      if (files.contains(path)) return files[path];
      return Error{.code = Errc::not_found, .what = "read " + path + ": No such file or directory"};
    };
    m.file_kind = [this](const std::string& path) {
      return kinds.contains(path) ? kinds[path] : FileKind::absent;
    };
    m.can_create = [](const std::string& path) -> Result<void> {
      if (path.starts_with("/full")) return Error{.what = "write " + path + ": No space"};
      return {};
    };
    m.check_secret = [](const std::string& path) -> Result<void> {
      if (path == "secret") return {};
      return Error{.code = Errc::not_found, .what = "open secret file " + path};
    };
    m.environment = [this](const std::string& name) -> std::optional<std::string> {
      if (env.contains(name)) return env[name];
      return std::nullopt;
    };
    m.new_job_id = [] { return "random"; };
    m.slurm_time_left = [this](const std::string&) { return time_left; };
    m.any_address = [] { return std::string("10.0.0.5"); };
    m.address_towards = [](const std::string& host) -> Result<std::string> {
      if (host == "alias") return Error{.code = Errc::usage, .what = "resolve host 'alias': no"};
      return std::string("10.0.0.1");
    };
    m.interface_address = [](const std::string&) { return std::string("10.9.9.9"); };
    m.folder = [] { return std::string("/work"); };
    m.whole_environment = [this] {
      std::vector<std::string> all;
      for (const auto& [name, value] : env) all.push_back(name + "=" + value);
      return all;
    };
    return m;
  }

  Result<BuiltPlan> build(const Words& words) {
    auto options = read_options(words);
    if (!options) return options.error();
    return build_plan(*options, machine());
  }
  BuiltPlan built(const Words& words) {
    auto result = build(words);
    REQUIRE_MESSAGE(result, (result ? "" : result.error().what));
    return *result;
  }
  Plan plan(const Words& words) { return built(words).plan; }
  // The exit code and the sentence.
  std::string refused(const Words& words) {
    auto result = build(words);
    if (result) return "accepted";
    CHECK(result.error().what.find('\n') == std::string::npos);
    return std::to_string(exit_code_of(result.error())) + " " + result.error().what;
  }
};

}  // namespace

TEST_CASE("the plan of the plainest command line") {
  FakeMachine fake;
  const auto built = fake.built({"./train", "--lr", "1"});
  const Plan& plan = built.plan;
  CHECK(plan.argv == Words{"./train", "--lr", "1"});
  CHECK(plan.nproc == 1);
  CHECK(plan.job_id == "random");
  CHECK(plan.host == "here");
  CHECK(plan.bind == BindPolicy::none);
  CHECK(plan.cpusets.empty());
  CHECK(plan.omp_threads == 8);
  CHECK(plan.output.mode == OutputMode::prefix);
  CHECK(plan.output.tee == StreamSet::both);
  CHECK(plan.stdin_to == StdinPlan::one_rank);
  CHECK(plan.grace == std::chrono::seconds(10));
  CHECK(plan.store_listen == "127.0.0.1:0");
  CHECK(plan.master_addr == "127.0.0.1");
  CHECK(built.warnings.empty());
  CHECK(fake.topology_asked == 0);
}

TEST_CASE("workers: per node, in total, both, by machine") {
  FakeMachine fake;
  CHECK(fake.plan({"--nproc", "4", "p"}).nproc == 4);
  CHECK(fake.plan({"-np", "4", "p"}).nproc == 4);
  {
    const ScopedEnv nproc("DLAUNCH_NPROC", "3");
    CHECK(fake.plan({"p"}).nproc == 3);
    CHECK(fake.plan({"-np", "2", "p"}).nproc == 2);  // flags come first, whatever they are called
    CHECK(fake.refused({"--nproc", "4", "-np", "2", "p"}).starts_with("64 --nproc asks for 4"));
  }
  {
    const ScopedEnv np("DLAUNCH_NP", "3");
    CHECK(fake.plan({"--nproc", "2", "p"}).nproc == 2);
  }
  CHECK(fake.plan({"-n", "4", "--ppn", "4", "p"}).nproc == 4);
  CHECK(fake.plan({"--nproc", "auto", "p"}).nproc == 8);
  CHECK(fake.plan({"--nproc", "cpu", "p"}).nproc == 8);
  CHECK(fake.plan({"--nproc", "numa", "p"}).nproc == 2);
  fake.cpus.quota = 2.5;
  CHECK(fake.plan({"--nproc", "auto", "p"}).nproc == 3);
  CHECK(fake.refused({"-n", "4", "--nproc", "2", "p"}) ==
        "64 --nproc asks for 2 workers and -n for 4, on one machine these are the same");
  CHECK(fake.refused({"--nproc", "0", "p"}) ==
        "64 --nproc: '0' is not a whole number from 1 to 16384, auto, numa or gpu");
  CHECK(fake.refused({"-np", "-1", "p"}) == "64 -np: '-1' is not a whole number from 1 to 16384");
  CHECK(fake.refused({"--nproc", "gpu", "p"}) ==
        "64 --nproc: there is no GPU here: no driver says so in /proc/driver/nvidia/gpus");
  CHECK(fake.refused({"--nproc", "99999999999", "p"}).starts_with("64 --nproc: '99999999999'"));
}

TEST_CASE("a missing program") {
  FakeMachine fake;
  CHECK(fake.refused({}) == "64 no program given: dlaunch [options] program [argument ...]");
  CHECK(fake.refused({"-n", "2", "--"}).starts_with("64 no program given"));
  CHECK(fake.refused({"-m"}) == "64 no module given: dlaunch -m MODULE [argument ...]");
  CHECK(fake.refused({""}) == "64 the program's name is empty");
}

TEST_CASE("Python: modules, and scripts that the system could not execute") {
  FakeMachine fake;
  fake.kinds = {{"train.py", FileKind::plain},
                {"./run.py", FileKind::executable},
                {"run.py", FileKind::executable},
                {"sub/train.py", FileKind::plain}};
  CHECK(fake.plan({"-m", "pkg.train", "-v"}).argv ==
        Words{"python3", "-u", "-m", "pkg.train", "-v"});
  CHECK(fake.plan({"train.py", "a"}).argv == Words{"python3", "-u", "train.py", "a"});
  CHECK(fake.plan({"./run.py"}).argv == Words{"./run.py"});
  CHECK(fake.plan({"run.py"}).argv == Words{"python3", "-u", "run.py"});
  CHECK(fake.plan({"absent.py"}).argv == Words{"absent.py"});
  CHECK(fake.plan({"--no-python", "train.py"}).argv == Words{"train.py"});
  CHECK(fake.plan({"--chdir", "sub", "train.py"}).argv == Words{"python3", "-u", "train.py"});
  CHECK(fake.plan({"--chdir", "other", "train.py"}).argv == Words{"train.py"});
  fake.env.insert_or_assign("PYTHON_EXEC", "/opt/py");
  CHECK(fake.plan({"-m", "x"}).argv == Words{"/opt/py", "-u", "-m", "x"});
  CHECK(fake.refused({"-m", "--no-python", "x"}) == "64 -m and --no-python contradict each other");
}

TEST_CASE("who means several programs, as mpirun has them, is told that there is one") {
  FakeMachine fake;
  const auto built = fake.built({"-np", "2", "a", ":", "-np", "1", "b"});
  CHECK(built.plan.argv == Words{"a", ":", "-np", "1", "b"});
  REQUIRE(built.warnings.size() == 1);
  CHECK(built.warnings[0].starts_with("':' and what follows are arguments of the program"));
  CHECK(fake.built({"a", ":", "b", ":"}).warnings.empty());
}

TEST_CASE("variables are set or passed on") {
  FakeMachine fake;
  fake.env.insert_or_assign("HOME", "/home/me");
  const auto built = fake.built({"-x", "A=1=2", "-x", "HOME", "-x", "NOPE", "-x", "E=", "p"});
  using Env = std::vector<std::pair<std::string, std::string>>;
  CHECK(built.plan.env == Env{{"A", "1=2"}, {"HOME", "/home/me"}, {"E", ""}});
  CHECK(built.warnings == Words{"-x NOPE: it is not set here, so it is not passed on"});
  CHECK(fake.refused({"-x", "=1", "p"}) == "64 -x: '=1' has no name");
  CHECK(fake.refused({"-x", "RANK=7", "p"}) ==
        "64 -x RANK: each worker has its own, which dlaunch gives it; leave it out");
}

TEST_CASE("hosts: only this machine, its slots are the default") {
  FakeMachine fake;
  fake.files = {{"hosts", "localhost slots=4 max_slots=6\n"},
                {"two", "here:2\nlocalhost:3\n"},
                {"bad", "here slots=x\n"}};
  CHECK(fake.plan({"-H", "here:3", "p"}).nproc == 3);
  CHECK(fake.plan({"--hostfile", "hosts", "p"}).nproc == 4);
  CHECK(fake.plan({"--hostfile", "two", "p"}).nproc == 5);
  CHECK(fake.plan({"-f", "hosts", "-n", "2", "p"}).nproc == 2);
  CHECK(fake.built({"-f", "hosts", "-n", "6", "p"}).notes[0] ==
        "6 workers on 4 slots of the host list");
  CHECK(fake.refused({"-f", "hosts", "-n", "7", "p"}) ==
        "64 7 workers are more than max_slots=6 in hosts");
  CHECK(fake.refused({"-f", "bad", "p"}) ==
        "65 bad:1: slots: 'x' is not a whole number from 1 to 1048576");
  CHECK(fake.refused({"-f", "absent", "p"}) == "66 -f: read absent: No such file or directory");
  CHECK(fake.refused({"-H", "here", "-f", "hosts", "p"}) ==
        "64 give hosts with -H or -f, not both");
  CHECK(fake.refused({"-H", "a b", "p"}).starts_with("64 -H: 'a b' is not a host name"));
}

namespace {

// "a:2 b:0 …", a star behind the one that leads.
std::string hosts_of(const Plan& plan) {
  std::string text;
  for (const auto& host : plan.nodes.hosts) {
    text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.nproc) +
            (host.leads ? "*" : "");
  }
  return text;
}

}  // namespace

TEST_CASE("hosts: others are started from here, numbered as they are listed") {
  FakeMachine fake;
  fake.files = {{"list", "# x\nnode[01-02]:8\nhere:2\nlocalhost\njoe@node03 port=2222\n"}};
  const Plan plan = fake.plan({"-f", "list", "--min-nproc", "20", "p"});
  CHECK(hosts_of(plan) == "node01:8 node02:8 here:3* node03:1");
  CHECK(plan.nproc == 3);
  CHECK((plan.nodes.min == 4 && plan.nodes.max == 4 && plan.nodes.rank == 2));
  CHECK(plan.nodes.total == 20);
  CHECK(plan.nodes.lead == NodesPlan::Lead::yes);
  CHECK(plan.nodes.hosts[3].user == "joe");
  CHECK(plan.nodes.hosts[3].port == 2222);
  CHECK(plan.nodes.ssh == Words{"ssh"});
  CHECK(plan.store_listen == "10.0.0.1:0");
  CHECK(plan.master_addr == "10.0.0.1");
  CHECK(plan.job_id == "random");
  CHECK((plan.stdin_to == StdinPlan::one_rank && plan.stdin_rank == 0));

  const Plan none = fake.plan({"-H", "a:2,b", "--ssh-command", "ssh -i key", "p"});
  CHECK(hosts_of(none) == "a:2 b:1");
  CHECK((none.nproc == 0 && none.nodes.rank == -1 && none.nodes.own_number() == -1));
  CHECK(none.nodes.ssh == Words{"ssh", "-i", "key"});
  CHECK(fake.plan({"-H", "a", "p"}).nodes.several());
  CHECK(fake.plan({"-H", "here,a", "p"}).stdin_to == StdinPlan::one_rank);
  CHECK(hosts_of(fake.plan({"-H", "a:4,b:4,c:4", "-n", "6", "p"})) == "a:4 b:2");
  CHECK(hosts_of(fake.plan({"-H", "a:4,b:4", "--nproc", "1", "p"})) == "a:1 b:1");
  const Plan each = fake.plan({"-H", "here,a", "--nproc", "auto", "p"});
  CHECK(hosts_of(each) == "here:0* a:0");
  CHECK((each.nproc == 8 && each.nodes.total == 0));
  const Plan some = fake.plan({"-H", "a:1,b:2,c:4", "--nnodes", "2:3", "p"});
  CHECK((some.nodes.min == 2 && some.nodes.max == 3 && some.min_nproc == 3));
}

TEST_CASE("hosts: where the others find this one") {
  FakeMachine fake;
  CHECK(fake.plan({"-H", "a", "--interface", "ib0", "p"}).store_listen == "10.9.9.9:0");
  CHECK(fake.plan({"-H", "a", "--rdzv", "tcp://localhost:29411", "p"}).store_listen ==
        "127.0.0.1:29411");
  CHECK(fake.refused({"-H", "a", "--rdzv", "tcp://a", "p"})
            .starts_with("64 --rdzv: 'a' is not an address of this machine, which leads"));
  CHECK(fake.refused({"-H", "alias", "p"}) ==
        "64 resolve host 'alias': no; say with --interface or --rdzv at which of our addresses the "
        "others reach us");
}

TEST_CASE("hosts: what contradicts a start from here") {
  FakeMachine fake;
  CHECK(fake.refused({"-H", "a", "--node-rank", "0", "p"})
            .starts_with("64 -H and --node-rank contradict each other: "));
  CHECK(fake.refused({"-H", "a", "--standalone", "p"}).starts_with("64 -H and --standalone"));
  CHECK(
      fake.refused({"-H", "a", "--master-addr", "b", "p"}).starts_with("64 -H and --master-addr"));
  CHECK(fake.refused({"-H", "a,b", "--nnodes", "3", "p"}) == "64 --nnodes 3: the job has 2 hosts");
  CHECK(fake.refused({"-H", "a,b", "--nproc", "auto", "-n", "4", "p"})
            .starts_with("64 --nproc auto and -n contradict"));
  CHECK(
      fake.refused({"-H", "a", "--max-nproc", "4", "p"}).starts_with("64 --max-nproc: on several"));
  CHECK(fake.plan({"-H", "here:2,a:2", "--stdin", "2", "p"}).stdin_rank == 2);
  CHECK(fake.plan({"-H", "a:2,here:2", "--stdin", "2", "p"}).stdin_rank == 2);
  CHECK(fake.plan({"-H", "a:2", "--stdin", "all", "p"}).stdin_to == StdinPlan::all);
  CHECK(fake.refused({"--ssh-command", "ssh", "p"}) ==
        "64 --ssh-command has no effect without --hosts or --hostfile");
  CHECK(fake.refused({"--ssh-logins", "4", "p"}) ==
        "64 --ssh-logins has no effect without --hosts or --hostfile");
  CHECK(fake.refused({"-H", "a", "--ssh-logins", "0", "p"}).starts_with("64 --ssh-logins: '0' "));
  CHECK(fake.plan({"-H", "a", "--ssh-logins", "64", "p"}).nodes.logins == 64);
}

TEST_CASE("hosts that a command lists: places for as many as there may be") {
  FakeMachine fake;
  const char* script = "--host-discovery-script";
  const Plan plan = fake.plan({script, "./list", "--nnodes", "2:3", "--nproc", "4", "p"});
  CHECK(hosts_of(plan) == ":4 :4 :4");
  CHECK((plan.nproc == 0 && plan.nodes.own_number() == -1 && plan.nodes.several()));
  CHECK((plan.nodes.min == 2 && plan.nodes.max == 3 && plan.min_nproc == 8));
  CHECK(plan.nodes.discovery == "./list");
  CHECK(describe(plan).find("workers: 4 on each of 2 to 3 hosts that ./list lists, by ssh\n") !=
        std::string::npos);
  CHECK(fake.refused({script, "x", "p"}).starts_with("64 --host-discovery-script needs --nnodes"));
  CHECK(fake.refused({script, "x", "-H", "a", "--nnodes", "1:2", "p"})
            .starts_with("64 give hosts with --host-discovery-script or -H, not both"));
  CHECK(fake.refused({script, "x", "-n", "4", "--nnodes", "1:2", "p"})
            .starts_with("64 --host-discovery-script and -n contradict each other: "));
  CHECK(fake.refused({script, "x", "--nproc", "auto", "--nnodes", "1:2", "p"})
            .starts_with("64 --nproc: 'auto' "));
}

TEST_CASE("a health check is for hosts that may join a job that has begun") {
  FakeMachine fake;
  const char* check = "--health-check";
  const Plan plan = fake.plan({check, "./well now", "-H", "here,a", "--max-restarts", "1", "p"});
  CHECK(plan.health_check == "./well now");
  CHECK(describe(plan).find("health check: './well now'\n") != std::string::npos);
  CHECK(fake.plan({check, "x", "-H", "here,a", "--nnodes", "1:2", "p"}).health_check == "x");
  CHECK(fake.refused({check, "x", "--max-restarts", "1", "p"})
            .starts_with("64 --health-check is for hosts that join "));
  CHECK(fake.refused({check, "x", "-H", "here,a", "p"})
            .starts_with("64 --health-check is for hosts that join "));
}

TEST_CASE("hosts: the order to the others makes the same plan there") {
  FakeMachine fake;
  fake.env = {{"LR", "0.1"}, {"HOME", "/root"}, {"SSH_AUTH_SOCK", "x"}};
  const Plan plan = fake.plan({"-H", "here:2,a:3", "-x", "LR", "-x", "B=2", "--grace", "3",
                               "--only-rank", "4", "-v", "--error-file", "e", "./train", "--lr"});
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  CHECK(order->folder == "/work");
  CHECK(order->environment == Words{"LR=0.1"});
  CHECK((order->min_nodes == 2 && order->max_nodes == 2 && order->total == 5));
  NodesPlan nodes;
  nodes.max = nodes.min = 2;
  nodes.total = order->total;
  nodes.rank = 1;
  nodes.lead = NodesPlan::Lead::no;
  Options options = order->options;
  options.nproc = {"3", "--nproc"};
  const auto there = build_plan(options, fake.machine(), &nodes);
  REQUIRE_MESSAGE(there, (there ? "" : there.error().what));
  CHECK(there->plan.argv == plan.argv);
  CHECK(there->plan.nproc == 3);
  CHECK(there->plan.env == plan.env);
  CHECK(there->plan.grace == plan.grace);
  CHECK(there->plan.job_id == plan.job_id);
  CHECK(there->plan.output.only_ranks == plan.output.only_ranks);
  CHECK(there->plan.stdin_to == plan.stdin_to);
  CHECK(there->plan.error_file.empty());
  CHECK(what_must_agree(there->plan) == what_must_agree(plan));

  std::string bytes = plan.nodes.order;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_ssh_order(std::string_view(bytes).substr(0, size)));
  }
}

TEST_CASE("one node, and what says so") {
  FakeMachine fake;
  CHECK(fake.plan({"--nnodes=1:1", "--node-rank=0", "--standalone", "p"}).nproc == 1);
  CHECK(
      fake.refused({"--nnodes", "2", "p"}) ==
      "64 --nnodes 2 needs --rdzv: tcp://HOST:PORT, where one of the hosts listens for the others, "
      "or file:///FOLDER or etcd://HOST:PORT");
  CHECK(
      fake.refused({"--nnodes", "3:2", "p"}).starts_with("64 --nnodes: '2' is not a whole number"));
  CHECK(fake.refused({"--nnodes", "0", "p"}).find(", or MIN:MAX") != std::string::npos);
  CHECK(fake.refused({"--node_rank", "1", "p"}).find("(--nnodes 1)") != std::string::npos);
  CHECK(fake.built({"--rdzv_backend=c10d", "p"}).notes[0] ==
        "--rdzv_backend c10d: workers meet at dlaunch's own store");
  CHECK(fake.refused({"--rdzv_backend=etcd", "p"}) ==
        "64 --rdzv_backend: 'etcd' is not one of c10d, static");
}

TEST_CASE("several hosts: who leads, and where") {
  using Lead = NodesPlan::Lead;
  FakeMachine fake;
  auto nodes = [&](std::vector<std::string> words) {
    words.emplace_back("p");
    return fake.plan(words).nodes;
  };
  CHECK(nodes({"--nnodes", "2", "--rdzv", "tcp://here:7"}).lead == Lead::if_free);
  CHECK(nodes({"--nnodes", "2", "--rdzv", "here:7", "--node-rank", "0"}).lead == Lead::yes);
  CHECK(nodes({"--nnodes", "2", "--rdzv", "here:7", "--node-rank", "1"}).lead == Lead::no);
  CHECK(nodes({"--nnodes", "2:4", "--rdzv", "far"}).lead == Lead::no);
  CHECK(nodes({"--nnodes", "2:4", "--rdzv", "far"}).endpoint == "far:29400");
  CHECK(nodes({"--nnodes", "2:4", "--rdzv", "far"}).min == 2);
  // torchrun's static rendezvous.
  CHECK(
      nodes({"--nnodes", "2", "--node_rank=1", "--master_addr=far", "--master_port=8"}).endpoint ==
      "far:8");
  CHECK(fake.plan({"--nnodes", "2", "--master_addr=here", "p"}).store_listen == "10.0.0.1:29500");
  CHECK(fake.plan({"--nnodes", "2", "--master_addr=here", "p"}).master_port == 0);
  CHECK(fake.plan({"--nnodes", "2", "--rdzv", "here", "p"}).job_id == "default");
  CHECK(fake.plan({"--nnodes", "2", "-np", "6", "--rdzv", "here", "p"}).nproc == 3);
  // Only one that leads, and may be started again, keeps a journal.
  const auto journal = [&](Words words) {
    words.insert(words.end(), {"--nnodes", "2", "--rdzv", "here:7", "p"});
    return fake.plan(words).nodes.journal;
  };
  CHECK(journal({}).empty());
  CHECK(journal({"--max-restarts", "1", "--node-rank", "1"}).empty());
  CHECK(journal({"--max-restarts", "1"}).ends_with("/default-7"));
  CHECK(journal({"--max-restarts", "1", "--journal", "x"}) == "./x");
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here", "--journal", "x", "p"})
            .starts_with("64 --journal: a job without --max-restarts"));
  CHECK(fake.refused({"--journal", "x", "p"}).starts_with("64 --journal: only hosts that"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here", "--max-restarts", "1", "--journal",
                      "/full/x", "p"})
            .find("--journal: write /full/x~: No space") != std::string::npos);
  CHECK(fake.built({"--nnodes", "2", "--rdzv", "here", "p"})
            .warnings.at(0)
            .starts_with("no --secret-file: "));
  CHECK(fake.refused({"--nnodes", "2", "-np", "5", "--rdzv", "here", "p"})
            .starts_with("64 -np 5: that many workers cannot"));
  CHECK(fake.refused({"--nnodes", "2", "--node-rank", "0", "--rdzv", "far", "p"})
            .starts_with("64 --rdzv: node rank 0 leads the job, but 'far' is not"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here:0", "p"})
            .starts_with("64 --rdzv: all hosts have to know the port"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here", "--max-nproc", "9", "p"})
            .starts_with("64 --max-nproc: on several hosts"));
}

TEST_CASE("addresses must be ours") {
  FakeMachine fake;
  CHECK(fake.plan({"--rdzv", "tcp://here:29500", "p"}).store_listen == "10.0.0.1:29500");
  CHECK(fake.plan({"--rdzv_endpoint=localhost:0", "p"}).store_listen == "127.0.0.1:0");
  CHECK(fake.plan({"--rdzv_endpoint=localhost", "p"}).store_listen == "127.0.0.1:29400");
  CHECK(fake.plan({"--rdzv", "tcp://[::1]:5", "p"}).store_listen == "[::1]:5");
  CHECK(fake.plan({"--master-addr", "here", "--master-port", "7", "p"}).master_addr == "10.0.0.1");
  CHECK(fake.plan({"--master-addr", "here", "--master-port", "7", "p"}).master_port == 7);
  CHECK(fake.refused({"--rdzv", "tcp://far:1", "p"}) ==
        "64 --rdzv: 'far' is not an address of this machine; for a job on several say --nnodes");
  CHECK(fake.refused({"--master_addr", "far", "p"}).starts_with("64 --master_addr: 'far' is not"));
  CHECK(fake.refused({"--rdzv", "http://x", "p"}) ==
        "64 --rdzv: 'http://x' is not tcp://HOST:PORT, file:///FOLDER or "
        "etcd://HOST:PORT,.../PREFIX");
  CHECK(fake.refused({"--rdzv", "tcp://here:99999", "p"}).starts_with("64 --rdzv: 'here:99999'"));
  CHECK(fake.refused({"--master-port", "70000", "p"}).starts_with("64 --master-port: '70000'"));
  CHECK(fake.refused({"--rdzv", "here:7", "--master-port", "7", "p"})
            .starts_with("64 --rdzv and --master-port name the same port 7"));
}

TEST_CASE("job and secret") {
  FakeMachine fake;
  CHECK(fake.plan({"--rdzv-id", "run-7", "p"}).job_id == "run-7");
  CHECK(fake.plan({"--secret-file", "secret", "p"}).secret_file == "secret");
  CHECK(fake.refused({"--job-id", "a/b", "p"}).starts_with("64 --job-id: 'a/b' is not a name"));
  CHECK(fake.refused({"--job-id", "..", "p"}).starts_with("64 --job-id"));
  CHECK(fake.refused({"--secret-file", "no", "p"}) == "66 --secret-file: open secret file no");
}

TEST_CASE("workers by GPU: as many, near theirs, and each seeing only its own") {
  FakeMachine fake;
  fake.gpus = {{"0000:17:00.0", "GPU UUID: \t GPU-a\n", "4-7\n"},
               {"0000:65:00.0", "GPU UUID: \t GPU-b\n", "0-3\n"}};
  CHECK(fake.plan({"--nproc", "gpu", "p"}).nproc == 2);
  CHECK(fake.plan({"--nproc", "gpu", "p"}).gpus.empty());
  CHECK(fake.plan({"--nproc", "gpu", "p"}).gpus_asked == 2);
  CHECK(fake.plan({"p"}).gpus_asked == 0);
  CHECK(fake.plan({"--nproc", "gpu", "--isolate-gpus", "p"}).gpus ==
        std::vector<std::string>{"GPU-a", "GPU-b"});
  using Cpus = std::vector<std::vector<int>>;
  CHECK(fake.plan({"--nproc", "gpu", "--bind", "gpu", "p"}).cpusets ==
        Cpus{{4, 5, 6, 7}, {0, 1, 2, 3}});
  fake.hcas = {{"mlx5_0", {}, {0, 1, 2, 3}, true}, {"mlx5_1", {}, {4, 5, 6, 7}, true}};
  CHECK(fake.plan({"--nproc", "gpu", "p"}).hcas == "");  // each is near one
  fake.hcas.push_back({"mlx5_2", {}, {90}, true});
  CHECK(fake.plan({"--nproc", "gpu", "p"}).hcas == "mlx5_0,mlx5_1");
  CHECK(fake.plan({"--nproc", "2", "p"}).hcas.empty());
  CHECK(
      fake.refused({"--isolate-gpus", "--spares", "1", "p"}).starts_with("64 --isolate-gpus and"));
  CHECK(fake.refused({"--isolate-gpus", "--env", "CUDA_VISIBLE_DEVICES=1", "p"})
            .starts_with("64 --isolate-gpus and --env CUDA_VISIBLE_DEVICES set"));
  fake.env["CUDA_VISIBLE_DEVICES"] = "1";
  CHECK(fake.plan({"--nproc", "gpu", "p"}).nproc == 1);
  fake.env["CUDA_VISIBLE_DEVICES"] = "";
  CHECK(fake.refused({"--bind", "gpu", "p"}) ==
        "64 --bind: there is no GPU here: CUDA_VISIBLE_DEVICES hides them");
  // A host that only starts the others need not have one.
  fake.gpus.clear();
  const auto away = fake.plan({"--hosts", "there", "--nproc", "gpu", "--bind", "gpu", "p"});
  CHECK(away.nodes.hosts.at(0).nproc == 0);
}

TEST_CASE("each host's name is resolved once to see which one is ours") {
  FakeMachine fake;
  const auto plan = fake.plan({"--hosts", "a,b,here,c", "p"});
  REQUIRE(plan.nodes.hosts.size() == 4);
  CHECK(plan.nodes.hosts[2].leads);
  CHECK(fake.resolved["a"] == 1);
  CHECK(fake.resolved["b"] == 1);
  CHECK(fake.resolved["c"] == 1);
}

TEST_CASE("binding") {
  FakeMachine fake;
  const auto plan = fake.plan({"--nproc", "2", "--bind", "socket", "p"});
  CHECK(plan.bind == BindPolicy::socket);
  CHECK(plan.cpusets == std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(plan.omp_threads == 4);
  CHECK(fake.plan({"--bind-to", "l3cache", "p"}).bind == BindPolicy::l3);
  CHECK(fake.plan({"--bind-to", "package", "p"}).bind == BindPolicy::socket);
  CHECK(fake.plan({"-bind-to", "none", "-map-by", "slot", "p"}).bind == BindPolicy::none);
  CHECK(fake.refused({"--bind-to", "hwthread", "p"}) ==
        "64 --bind-to: 'hwthread' is not one of none, core, l3, numa, socket, gpu");
  CHECK(fake.refused({"--map-by", "node", "p"}).starts_with("64 --map-by: ranks are placed"));
  const auto reported = fake.built({"-n", "2", "--bind", "l3", "--report-bindings", "p"});
  CHECK(reported.plan.report_bindings);
  CHECK(reported.bindings[0] == "socket 0 numa 0: 0 0 | 0 0");
  CHECK(fake.built({"--report-bindings", "p"}).bindings ==
        Words{"no worker is bound: all may use all 8 cores"});
}

TEST_CASE("OMP_NUM_THREADS is the share of the usable CPUs unless somebody set it") {
  FakeMachine fake;
  CHECK(fake.plan({"--nproc", "3", "p"}).omp_threads == 2);
  CHECK(fake.plan({"--nproc", "20", "p"}).omp_threads == 1);
  CHECK(fake.plan({"--omp-threads", "5", "p"}).omp_threads == 5);
  CHECK_FALSE(fake.plan({"--omp-threads", "keep", "p"}).omp_threads);
  CHECK_FALSE(fake.plan({"-x", "OMP_NUM_THREADS=3", "p"}).omp_threads);
  CHECK(fake.plan({"-n", "3", "--bind", "socket", "p"}).omp_threads == 2);
  fake.env.insert_or_assign("OMP_NUM_THREADS", "7");
  CHECK_FALSE(fake.plan({"p"}).omp_threads);
  CHECK(fake.plan({"--omp-threads", "auto", "p"}).omp_threads == 8);
  CHECK(fake.refused({"--omp-threads", "0", "p"}).starts_with("64 --omp-threads: '0'"));
  CHECK(fake.refused({"--omp-threads", "2", "-x", "OMP_NUM_THREADS=3", "p"}) ==
        "64 --omp-threads and -x OMP_NUM_THREADS set the same thing");
}

TEST_CASE("too many workers: a note, a warning only for a person at a terminal") {
  FakeMachine fake;
  fake.cpus = {2, 0};
  const Words line{"4 workers on 2 usable CPUs: OMP_NUM_THREADS=1"};
  CHECK(fake.built({"-n", "4", "p"}).notes == line);
  CHECK(fake.built({"-n", "4", "p"}).warnings.empty());
  fake.terminal = true;
  CHECK(fake.built({"-n", "4", "p"}).warnings == line);
  CHECK(fake.built({"-n", "2", "p"}).warnings.empty());
}

TEST_CASE("where the leader is elected") {
  FakeMachine fake;
  const auto plan = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--nnodes", "2:3", "p"});
    return fake.plan(words);
  };
  const Plan folder = plan({"--rdzv", "file:///shared/x"});
  CHECK(folder.nodes.elects());
  CHECK(folder.nodes.folder == "/shared/x");
  CHECK(folder.store_listen == "10.0.0.5:0");
  CHECK(folder.nodes.rank == -1);
  CHECK(plan({"--rdzv", "file:///x", "--interface", "eth0"}).store_listen == "10.9.9.9:0");
  CHECK(plan({"--rdzv", "file:///x", "--master-port", "7"}).master_port == 7);
  fake.env["ETCDCTL_USER"] = "me:word";
  const Plan etcd = plan({"--rdzv", "etcds://h1,h2:7/jobs"});
  REQUIRE(etcd.nodes.etcd);
  CHECK(etcd.nodes.etcd->endpoints.size() == 2);
  CHECK(etcd.nodes.etcd->password == "word");
  CHECK(etcd.store_listen == "10.0.0.1:0");
  CHECK(describe(etcd).find("led by whoever is elected, by etcd at h1:2379, h2:7") !=
        std::string::npos);
  CHECK(describe(etcd).find("word") == std::string::npos);
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--nnodes", "2", "p"});
    return fake.refused(words);
  };
  CHECK(refused({"--rdzv", "file://x"}).find("is not file:///FOLDER") != std::string::npos);
  CHECK(refused({"--rdzv", "etcd://"}).find("no server is named") != std::string::npos);
  CHECK(refused({"--rdzv", "etcd://me:word@h"}).find("ETCDCTL_USER") != std::string::npos);
  CHECK(refused({"--rdzv", "file:///x", "--master-addr", "h"}).find("contradict") !=
        std::string::npos);
  CHECK(fake.refused({"--rdzv", "file:///x", "p"}).find("with --nnodes") != std::string::npos);
}

TEST_CASE("output: modes and files") {
  FakeMachine fake;
  fake.kinds["afile"] = FileKind::plain;
  CHECK(fake.plan({"--output", "merged", "p"}).output.mode == OutputMode::merged);
  CHECK(fake.plan({"--log-dir", "d", "p"}).output.log_dir == "d");
  CHECK(fake.plan({"--output", "files", "--log-dir", "d", "p"}).output.mode == OutputMode::files);
  CHECK(fake.plan({"--tag-output", "p"}).output.mode == OutputMode::prefix);
  CHECK(fake.refused({"--output", "loud", "p"}) ==
        "64 --output: 'loud' is not one of prefix, merged, raw, files, none");
  CHECK(fake.refused({"--output", "files", "p"}) == "64 --output files needs --log-dir");
  CHECK(fake.refused({"--output", "raw", "--log-dir", "d", "p"}) ==
        "64 --output raw leaves nothing for --log-dir: use --output files or prefix");
  CHECK(fake.refused({"--output", "none", "--log-dir", "d", "p"}).starts_with("64 --output none"));
  CHECK(fake.refused({"--log-dir", "afile", "p"}) == "73 --log-dir: afile is a file, not a folder");
  for (const char* flag : {"--timestamps", "--label", "--only-rank=0"}) {
    CHECK(
        fake.refused({"--output", "raw", flag, "p"}).ends_with(" has no effect with --output raw"));
  }
}

TEST_CASE("torchrun's --redirects and --tee") {
  FakeMachine fake;
  const auto on_terminal = [&](const Words& flags) {
    Words words{"--log-dir", "d"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back("p");
    return fake.plan(words).output.tee;
  };
  CHECK(on_terminal({}) == StreamSet::both);
  CHECK(on_terminal({"--tee", "3"}) == StreamSet::both);
  CHECK(on_terminal({"-r", "3"}) == StreamSet::none);
  CHECK(on_terminal({"-r", "1"}) == StreamSet::err);
  CHECK(on_terminal({"-r", "2"}) == StreamSet::out);
  CHECK(on_terminal({"-r", "3", "-t", "2"}) == StreamSet::err);
  CHECK(on_terminal({"-r3", "-t3"}) == StreamSet::both);
  CHECK(fake.refused({"--tee", "3", "p"}).starts_with("64 --tee needs --log-dir: "));
  CHECK(fake.refused({"-r", "3", "p"}).starts_with("64 -r needs --log-dir: "));
  CHECK(fake.refused({"-r", "4", "--log-dir", "d", "p"}).starts_with("64 -r: '4'"));
  CHECK(fake.refused({"-r", "0:3,12:1", "--log-dir", "d", "p"})
            .starts_with("64 -r: streams per rank are not supported"));
}

TEST_CASE("ranks must exist") {
  FakeMachine fake;
  CHECK(fake.plan({"-n", "6", "--only-rank", "0,2-5", "p"}).output.only_ranks ==
        RankSet{0, 2, 3, 4, 5});
  CHECK(fake.refused({"-n", "4", "--only-rank", "0,4", "p"}).starts_with("64 --only-rank: "));
  CHECK(fake.plan({"-n", "4", "--stdin", "3", "p"}).stdin_rank == 3);
  CHECK(fake.plan({"--stdin", "none", "p"}).stdin_to == StdinPlan::none);
  CHECK(fake.plan({"-i", "all", "p"}).stdin_to == StdinPlan::all);
  CHECK(fake.refused({"-n", "4", "--stdin", "4", "p"}) ==
        "64 --stdin: '4' is not a whole number from 0 to 3, none or all");
}

TEST_CASE("colours are for terminals whose owner wants them") {
  const auto colored = [](bool terminal, const std::map<std::string, std::string>& env) {
    FakeMachine fake;
    fake.terminal = terminal;
    fake.env = env;
    return fake.plan({"p"}).output.color;
  };
  CHECK(colored(true, {{"TERM", "xterm"}}));
  CHECK_FALSE(colored(true, {}));
  CHECK_FALSE(colored(true, {{"TERM", "dumb"}}));
  CHECK_FALSE(colored(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}));
  CHECK_FALSE(colored(false, {{"TERM", "xterm"}}));
}

TEST_CASE("times, restarts, error file, transport") {
  FakeMachine fake;
  const auto plan = fake.plan({"--grace", "1.5s", "--timeout", "1h", "--max_restarts", "3",
                               "--error-file", "e.json", "--transport", "tcp", "--interface",
                               "eth0,10.0.0.0/8", "--port-range", "29600-29700", "p"});
  CHECK(plan.grace == std::chrono::milliseconds(1500));
  CHECK(plan.timeout == std::chrono::hours(1));
  CHECK(plan.max_restarts.restarts == 3);
  CHECK(plan.error_file == "e.json");
  CHECK(plan.transport == "tcp");
  CHECK(plan.interface == "eth0,10.0.0.0/8");
  CHECK(plan.port_range == "29600-29700");
  CHECK(fake.refused({"--grace", "soon", "p"}) ==
        "64 --grace: 'soon' is not a duration such as 10, 250ms, 1.5s, 2m, 1h");
  CHECK(fake.refused({"--max-restarts", "-1", "p"}).starts_with("64 --max-restarts: '-1'"));
  CHECK(fake.refused({"--error-file", "/full/e", "p"}) ==
        "73 --error-file: write /full/e: No space");
  CHECK(fake.refused({"--transport", "rdma", "p"}) ==
        "64 --transport: 'rdma' is not one of auto, shm, tcp");
  CHECK(fake.refused({"--port-range", "7-3", "p"}) ==
        "64 --port-range: '7-3' is not a range of ports such as 29600-29700");
  CHECK(fake.refused({"-q", "-v", "p"}) == "64 -q and -v contradict each other");
}

TEST_CASE("slurm: a step is a job on its nodes, led by the first") {
  FakeMachine fake;
  fake.env = {{"HOME", "/home/u"},
              {"SLURM_JOB_ID", "7"},
              {"SLURM_STEP_ID", "1"},
              {"SLURM_STEP_NODELIST", "here,there[1-2]"},
              {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
              {"SLURM_NODEID", "0"}};
  const auto built = fake.built({"--nproc", "2", "p"});
  const Plan& plan = built.plan;
  CHECK((plan.nodes.min == 3 && plan.nodes.max == 3 && plan.nodes.rank == 0));
  CHECK(plan.nodes.lead == NodesPlan::Lead::yes);
  CHECK(plan.nodes.endpoint == "here:20908");
  CHECK(plan.store_listen == "10.0.0.1:20908");
  CHECK(plan.job_id == "slurm-7.1");
  CHECK(plan.key_file == "/home/u/.dlaunch/key");
  CHECK(built.warnings.empty());
  CHECK(fake.plan({"--secret-file", "secret", "p"}).key_file.empty());
  CHECK_FALSE(fake.plan({"--standalone", "p"}).nodes.several());

  fake.env["SLURM_NODEID"] = "2";
  CHECK(fake.plan({"p"}).nodes.lead == NodesPlan::Lead::no);
  CHECK(fake.plan({"p"}).nodes.endpoint == "here:20908");
  fake.env["SLURM_STEP_TASKS_PER_NODE"] = "2(x3)";
  CHECK(fake.refused({"p"}).starts_with("64 Slurm started 2 dlaunch on here"));
  CHECK(fake.plan({"--nnodes", "1", "p"}).nproc == 1);
  fake.env["DLAUNCH_ROUND"] = "1";  // started by a worker
  CHECK_FALSE(fake.plan({"p"}).nodes.several());
}

TEST_CASE("slurm: a journal is for the job that is put into the queue again") {
  FakeMachine fake;
  fake.env = {{"SLURM_JOB_ID", "7"},
              {"SLURM_STEP_ID", "1"},
              {"SLURM_STEP_NODELIST", "here,there"},
              {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
              {"SLURM_RESTART_COUNT", "3"},
              {"SLURM_NODEID", "0"}};
  const auto nodes = [&](Words words) {
    words.insert(words.end(), {"--max-restarts", "1", "p"});
    return fake.plan(words).nodes;
  };
  CHECK(nodes({}).journal.empty());
  CHECK(nodes({"--journal", "x"}).journal == "./x");
  CHECK((nodes({"--journal", "x"}).slurm_job == "7" && nodes({"--journal", "x"}).requeued == 3));
  CHECK_FALSE(nodes({"--journal", "x"}).outlives_leader());
  CHECK(fake.refused({"--journal", "x", "p"}).starts_with("64 --journal: a job without"));
  CHECK(fake.refused({"--journal", "x", "--rdzv", "file:///f", "--max-restarts", "1", "p"})
            .starts_with("64 --journal: only hosts"));
  fake.env["SLURM_NODEID"] = "1";
  CHECK(nodes({"--journal", "x"}).journal.empty());
  fake.env.erase("SLURM_STEP_ID");
  fake.env["SLURM_JOB_NODELIST"] = "here,there";
  fake.env["SLURM_TASKS_PER_NODE"] = fake.env["SLURM_JOB_CPUS_PER_NODE"] = "1(x2)";
  CHECK(nodes({"--journal", "x"}).journal == "./x");
  CHECK(nodes({"--journal", "x"}).slurm_job == "7");
}

TEST_CASE("slurm: where the first node calls itself 127.0.1.1, it listens as the others see it") {
  FakeMachine fake;
  fake.env = {{"SLURM_JOB_ID", "7"},
              {"SLURM_STEP_ID", "0"},
              {"SLURM_STEP_NODELIST", "localhost,there"},
              {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
              {"SLURM_NODEID", "0"}};
  const auto built = fake.built({"p"});
  CHECK(built.plan.store_listen == "10.0.0.1:20907");
  CHECK(built.warnings.size() == 1);  // no HOME: no secret
}

TEST_CASE("slurm: in an allocation the other nodes are started by srun") {
  FakeMachine fake;
  fake.env = {{"SLURM_JOB_ID", "7"},
              {"SLURM_JOB_NODELIST", "n[1-3]"},
              {"SLURM_TASKS_PER_NODE", "2(x2),1"},
              {"SLURM_JOB_CPUS_PER_NODE", "8(x2),4"},
              {"SLURMD_NODENAME", "n1"},
              {"SLURM_CPUS_ON_NODE", "8"},
              {"LR", "0.1"}};
  const Plan plan = fake.plan({"p"});
  CHECK(hosts_of(plan) == "n1:2* n2:2 n3:1");
  CHECK((plan.nodes.by_srun && plan.nodes.ssh == Words{"srun"}));
  CHECK((plan.nodes.hosts[1].cpus == 8 && plan.nodes.hosts[2].cpus == 4));
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  CHECK((order->by_srun && order->environment == Words{"LR=0.1"}));
  CHECK(hosts_of(fake.plan({"-n", "3", "p"})) == "n1:2* n2:1");
  CHECK(hosts_of(fake.plan({"--nproc", "4", "p"})) == "n1:4* n2:4 n3:4");
  CHECK(fake.plan({"--ssh-command", "ssh -x", "p"}).nodes.ssh == Words{"ssh", "-x"});
  CHECK_FALSE(fake.plan({"--standalone", "p"}).nodes.several());
  fake.env.erase("SLURMD_NODENAME");  // the shell of salloc on a login node
  CHECK(hosts_of(fake.plan({"p"})) == "n1:2 n2:2 n3:1");
  fake.env["SLURM_JOB_NODELIST"] = "here";
  fake.env["SLURM_TASKS_PER_NODE"] = "4";
  fake.env["SLURM_JOB_CPUS_PER_NODE"] = "4";
  CHECK((!fake.plan({"p"}).nodes.several() && fake.plan({"p"}).nproc == 4));
}

TEST_CASE("slurm: workers that were left with a single CPU are told about") {
  FakeMachine fake;
  fake.env = {{"SLURM_JOB_ID", "7"},           {"SLURM_STEP_ID", "0"},
              {"SLURM_STEP_NODELIST", "here"}, {"SLURM_STEP_TASKS_PER_NODE", "1"},
              {"SLURM_NODEID", "0"},           {"SLURM_CPUS_ON_NODE", "1"}};
  fake.cpus = {1, 0};
  REQUIRE(fake.built({"--nproc", "8", "p"}).warnings.size() == 1);
  CHECK(fake.built({"--nproc", "8", "p"}).warnings[0].starts_with("8 workers share the one CPU"));
  CHECK(fake.built({"p"}).warnings.empty());
  fake.cpus = {2, 0};  // not bound
  CHECK(fake.built({"--nproc", "8", "p"}).warnings.empty());
}

TEST_CASE("slurm: a signal before the time is up") {
  using namespace std::chrono;
  FakeMachine fake;
  CHECK_FALSE(fake.plan({"p"}).end_signal_after);
  CHECK(fake.refused({"--end-signal", "USR1@5m", "p"}) ==
        "64 --end-signal has no effect: this is not run in a job of Slurm");
  fake.env = {{"SLURM_JOB_ID", "7"}};
  fake.time_left = hours(1);
  const auto plan = [&](const Words& options) {
    Words words = {"--standalone"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("p");
    return fake.plan(words);
  };
  CHECK(plan({}).end_signal_after == hours(1) - seconds(15));
  CHECK(plan({}).end_signal == SIGTERM);
  CHECK(plan({"--grace", "30"}).end_signal_after == hours(1) - seconds(35));
  CHECK(plan({"--end-signal", "USR1@5m"}).end_signal_after == minutes(55));
  CHECK(plan({"--end-signal", "SIGUSR1@5m"}).end_signal == SIGUSR1);
  CHECK(plan({"--end-signal", "USR1@2h"}).end_signal_after == seconds(0));
  CHECK_FALSE(plan({"--end-signal", "none"}).end_signal_after);
  for (const char* bad : {"USR1", "@5", "KILL@5", "USR1@soon", "5m"}) {
    CHECK(fake.refused({"--standalone", "--end-signal", bad, "p"}).starts_with("64 --end-signal"));
  }
  fake.time_left.reset();
  CHECK_FALSE(plan({}).end_signal_after);
}

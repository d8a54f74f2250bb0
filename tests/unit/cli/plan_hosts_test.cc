#include <signal.h>

#include <doctest/doctest.h>

#include "cli/plan_builder.h"
#include "cli/ssh_order.h"
#include "tests/unit/cli/fake_machine.h"
#include "tests/unit/cli/scoped_env.h"

using namespace dlaunch;

TEST_CASE("hosts: only this machine, its slots are the default") {
  FakeMachine fake;
  fake.files = {{"hosts", "localhost slots=4 max_slots=6\n"},
                {"two", "here:2\nlocalhost:3\n"},
                {"bad", "here slots=x\n"}};
  CHECK(fake.plan({"-H", "here:3", "p"}).nproc == 3);
  CHECK(fake.plan({"--hostfile", "hosts", "p"}).nproc == 4);
  CHECK(fake.plan({"--hostfile", "two", "p"}).nproc == 5);
  CHECK(fake.plan({"-H", "here,localhost", "p"}).nproc == 2);
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

TEST_CASE("hosts: dlaunch starts other hosts, numbered in the order of the list") {
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
  CHECK(hosts_of(fake.plan({"-H", "here,a,localhost", "p"})) == "here:2* a:1");
  CHECK(hosts_of(fake.plan({"-H", "a:4,b:4,c:4", "-n", "6", "p"})) == "a:4 b:2");
  // DeepSpeed's takes the first of them, torchrun's has to agree.
  CHECK(hosts_of(fake.plan({"--num_nodes", "2", "-H", "a:4,b:4,c:4", "p"})) == "a:4 b:4");
  CHECK(fake.refused({"--num_nodes", "3", "-H", "a:4,b:4", "p"}) ==
        "64 --num_nodes 3: the job has 2 hosts");
  CHECK(fake.refused({"--nnodes", "1", "-H", "a:4,b:4", "p"}) ==
        "64 --nnodes 1: the job has 2 hosts");
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
  // Names that only ssh knows.
  CHECK(fake.plan({"-H", "here,alias,a", "p"}).store_listen == "10.0.0.1:0");
  const auto built = fake.built({"-H", "alias,alias:2", "p"});
  CHECK(built.plan.store_listen == "10.0.0.5:0");
  REQUIRE(built.warnings.size() == 1);
  CHECK(built.warnings[0] ==
        "resolve host 'alias': no; the others are to reach us at 10.0.0.5, unless --interface or "
        "--rdzv says where");
  CHECK(fake.refused({"-H", "a", "--interface", "none0", "p"}) ==
        "64 host here: --interface: no interface 'none0'");
  fake.any = "127.0.0.1";
  CHECK(fake.refused({"-H", "alias", "p"}) ==
        "64 resolve host 'alias': no; say with --interface or --rdzv at which of our addresses the "
        "others reach us");
}

TEST_CASE("hosts: options that contradict a start from here") {
  FakeMachine fake;
  CHECK(fake.refused({"-H", "a", "--node-rank", "0", "p"})
            .starts_with("64 -H and --node-rank contradict each other: "));
  CHECK(fake.refused({"-H", "a", "--standalone", "p"}).starts_with("64 -H and --standalone"));
  CHECK(
      fake.refused({"-H", "a", "--master-addr", "b", "p"}).starts_with("64 -H and --master-addr"));
  CHECK(fake.refused({"-H", "a,b", "--nnodes", "x", "p"}).starts_with("64 --nnodes: 'x' "));
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
  CHECK(fake.plan({"-H", "a", "p"}).nodes.tree == SshTree::off);
  CHECK(fake.plan({"-H", "a", "--ssh-tree", "on", "p"}).nodes.tree == SshTree::on);
  CHECK(fake.plan({"-H", "a", "--ssh-tree", "auto", "p"}).nodes.tree == SshTree::automatic);
  CHECK(fake.refused({"-H", "a", "--ssh-tree", "deep", "p"}).starts_with("64 --ssh-tree: 'deep'"));
  CHECK(fake.refused({"--ssh-tree", "on", "p"}) ==
        "64 --ssh-tree has no effect without --hosts or --hostfile");
}

TEST_CASE("hosts that a command lists: places for the largest number") {
  FakeMachine fake;
  const char* script = "--host-discovery-script";
  const Plan plan = fake.plan({script, "./list", "--nnodes", "2:3", "--nproc", "4", "p"});
  CHECK(hosts_of(plan) == ":4 :4 :4");
  CHECK((plan.nproc == 0 && plan.nodes.own_number() == -1 && plan.nodes.several()));
  CHECK((plan.nodes.min == 2 && plan.nodes.max == 3 && plan.min_nproc == 8));
  CHECK(plan.nodes.discovery == "./list");
  CHECK(plan.store_listen == "10.0.0.5:0");
  CHECK(describe(plan).find("workers: 4 on each of 2 to 3 hosts that ./list lists, by ssh\n") !=
        std::string::npos);
  CHECK(fake.refused({script, "x", "--nnodes", "1:2", "--nproc", "10000", "p"}) ==
        "64 20000 workers are more than 16384");
  CHECK(fake.refused({script, "x", "p"}).starts_with("64 --host-discovery-script needs --nnodes"));
  CHECK(fake.refused({script, "x", "-H", "a", "--nnodes", "1:2", "p"})
            .starts_with("64 give hosts with --host-discovery-script or -H, not both"));
  CHECK(fake.refused({script, "x", "-n", "4", "--nnodes", "1:2", "p"})
            .starts_with("64 --host-discovery-script and -n contradict each other: "));
  CHECK(fake.refused({script, "x", "--nproc", "auto", "--nnodes", "1:2", "p"})
            .starts_with("64 --nproc: 'auto' "));
}

TEST_CASE("a missing interface is reported before workers start, on hosts with workers") {
  FakeMachine fake;
  const auto refused = [&](Words words) {
    words.insert(words.end(), {"--interface", "none0", "p"});
    return fake.refused(words);
  };
  const std::string told = "--interface: no interface 'none0'";
  CHECK(refused({}) == "64 " + told);
  CHECK(refused({"--nnodes", "2", "--rdzv", "tcp://there"}) == "64 host here: " + told);
  CHECK(refused({"-H", "here,a", "--rdzv", "tcp://here"}) == "64 host here: " + told);
  // Only the others have workers.
  CHECK(refused({"-H", "a", "--rdzv", "tcp://here"}) == "accepted");
  // Started by another dlaunch, which names the host.
  auto options = read_options({"--interface", "none0", "p"});
  REQUIRE(options);
  NodesPlan nodes;
  nodes.min = nodes.max = 2;
  nodes.lead = NodesPlan::Lead::no;
  nodes.endpoint = "a:1";
  const auto built = build_plan(*options, fake.machine(), &nodes);
  REQUIRE_FALSE(built);
  CHECK(built.error().what == told);
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

TEST_CASE("a flag drops the environment's equivalent options") {
  FakeMachine fake;
  const ScopedEnv hostfile("DLAUNCH_HOSTFILE", "none"), quiet("DLAUNCH_QUIET", "1");
  CHECK(fake.plan({"-H", "here,a", "p"}).nodes.hosts.size() == 2);
  CHECK(fake.plan({"--standalone", "-v", "p"}).nodes.max == 1);
  CHECK(
      fake.refused({"-H", "here,a", "--hostfile", "none", "p"}).starts_with("64 give hosts with"));
  const ScopedEnv nnodes("DLAUNCH_NNODES", "4");
  CHECK(fake.plan({"--standalone", "p"}).nodes.max == 1);
}

TEST_CASE("a flag overrides the environment about a host's place") {
  FakeMachine fake;
  const ScopedEnv rank("DLAUNCH_NODE_RANK", "3");
  CHECK(fake.plan({"p"}).nodes.max == 1);
  const ScopedEnv secret("DLAUNCH_SECRET_FILE", "secret"), hosts("DLAUNCH_HOSTS", "a,b");
  const Words by_hand = {"--nnodes", "2", "--node-rank", "0", "--rdzv", "here:1", "p"};
  CHECK(fake.plan(by_hand).nodes.hosts.empty());
  const ScopedEnv address("DLAUNCH_MASTER_ADDR", "other");
  CHECK(fake.plan({"--standalone", "p"}).nodes.max == 1);
  CHECK(fake.plan({"-H", "here,a", "p"}).nodes.rank == 0);
  const auto emitted = read_options({"--emit", "kubernetes", "--image", "i", "p"});
  REQUIRE(emitted);
  CHECK((!emitted->hosts && !emitted->node_rank && !emitted->master_addr && !emitted->secret_file));
}

TEST_CASE("hosts: the devices of a step of Slurm are each host's own") {
  const Words all = {"LR=0.1",     "CUDA_VISIBLE_DEVICES=0",      "SLURM_PROCID=3",
                     "HOME=/root", "SLURM_TOPOLOGY_ADDR=s0.here", "DLAUNCH_RACK=s0"};
  CHECK(forwarded_environment(all, true) == Words{"LR=0.1"});
  CHECK(forwarded_environment(all, false) ==
        Words{"LR=0.1", "CUDA_VISIBLE_DEVICES=0", "SLURM_PROCID=3"});
}

TEST_CASE("hosts: the order to the others makes the same plan there") {
  FakeMachine fake;
  fake.env = {{"LR", "0.1"}, {"HOME", "/root"}, {"SSH_AUTH_SOCK", "x"}};
  const Plan plan =
      fake.plan({"-H", "here:2,a:3", "-x", "LR", "-x", "B=2", "--grace", "3", "--only-rank", "4",
                 "-v", "--error-file", "e", "--events", "f", "./train", "--lr"});
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
  CHECK(there->plan.events_file.empty());
  CHECK(what_must_agree(there->plan) == what_must_agree(plan));

  std::string bytes = plan.nodes.order;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_ssh_order(std::string_view(bytes).substr(0, size)));
  }
}

TEST_CASE("hosts: the order says with which ssh the others may log in to further hosts") {
  FakeMachine fake;
  const auto allowed = [&](const Words& options) {
    Words words = {"-H", "here,a", "--ssh-command", "ssh -x"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("p");
    return decode_ssh_order(fake.plan(words).nodes.order)->tree_ssh;
  };
  CHECK(allowed({}).empty());
  CHECK(allowed({"--ssh-tree", "off"}).empty());
  CHECK(allowed({"--ssh-tree", "auto"}) == Words{"ssh", "-x"});
  CHECK(allowed({"--ssh-tree", "on", "--ssh-identity-file", "k"}) == Words{"ssh", "-x", "-i", "k"});
}

TEST_CASE("one node, and the options that say so") {
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

TEST_CASE("several hosts: the leader and its address") {
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
  // A name that the others do not take for a loopback address; one that they do.
  CHECK(fake.plan({"--nnodes", "2", "--rdzv", "debian:7", "p"}).store_listen == "10.0.0.5:7");
  CHECK(nodes({"--nnodes", "2", "--rdzv", "debian:7"}).endpoint == "10.0.0.5:7");
  CHECK(fake.plan({"--nnodes", "2", "--rdzv", "localhost:7", "p"}).store_listen == "127.0.0.1:7");
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
  CHECK(fake.refused({"--journal", "x", "p"}).starts_with("64 --journal: only a job whose hosts"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here", "--max-restarts", "1", "--journal",
                      "/full/x", "p"})
            .find("--journal: write /full/x~: No space") != std::string::npos);
  CHECK(fake.built({"--nnodes", "2", "--rdzv", "here", "p"})
            .warnings.at(0)
            .starts_with("no --secret-file: "));
  CHECK(fake.refused({"--nnodes", "2", "-np", "5", "--rdzv", "here", "p"})
            .starts_with("64 -np 5: this is no multiple of 2, the number of hosts"));
  CHECK(fake.refused({"--nnodes", "2", "--node-rank", "0", "--rdzv", "far", "p"})
            .starts_with("64 --rdzv: node rank 0 leads the job, but 'far' is not"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here:0", "p"})
            .starts_with("64 --rdzv: all hosts have to know the port"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "here", "--max-nproc", "9", "p"})
            .starts_with("64 --max-nproc: on several hosts"));
}

TEST_CASE("addresses must belong to this host") {
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

TEST_CASE("each host's name is resolved once to find the own host") {
  FakeMachine fake;
  const auto plan = fake.plan({"--hosts", "a,b,here,c", "p"});
  REQUIRE(plan.nodes.hosts.size() == 4);
  CHECK(plan.nodes.hosts[2].leads);
  CHECK(fake.resolved["a"] == 1);
  CHECK(fake.resolved["b"] == 1);
  CHECK(fake.resolved["c"] == 1);
}

TEST_CASE("hosts that elect the leader") {
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
  // Not as an etcd on this host sees it, nor strangers unless they know a secret.
  CHECK(plan({"--rdzv", "etcd://localhost"}).store_listen == "10.0.0.5:0");
  const auto open = fake.built({"--rdzv", "file:///x", "--nnodes", "2", "p"});
  REQUIRE(open.warnings.size() == 1);
  CHECK(open.warnings[0].starts_with("no --secret-file: anyone who reaches its leader "));
  CHECK(fake.built({"--rdzv", "file:///x", "--nnodes", "2", "--secret-file", "secret", "p"})
            .warnings.empty());
  fake.env["ETCDCTL_USER"] = "me:word";
  const Plan etcd = plan({"--rdzv", "etcds://h1,h2:7/jobs"});
  REQUIRE(etcd.nodes.etcd);
  CHECK(etcd.nodes.etcd->endpoints.size() == 2);
  CHECK(etcd.nodes.etcd->password == "word");
  CHECK(etcd.store_listen == "10.0.0.1:0");
  CHECK(describe(etcd).find("led by the host that is elected, by etcd at h1:2379, h2:7") !=
        std::string::npos);
  CHECK(describe(etcd).find("word") == std::string::npos);
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--nnodes", "2", "p"});
    return fake.refused(words);
  };
  CHECK(refused({"--rdzv", "file://x"}).find("is not file:///FOLDER") != std::string::npos);
  CHECK(refused({"--rdzv", "file:///x", "--interface", "none0"}) ==
        "64 host here: --interface: no interface 'none0'");
  CHECK(refused({"--rdzv", "tcp://debian", "--interface", "none0"}) ==
        "64 host here: --interface: no interface 'none0'");
  CHECK(refused({"--rdzv", "etcd://"}).find("no server is named") != std::string::npos);
  CHECK(refused({"--rdzv", "etcd://me:word@h"}).find("ETCDCTL_USER") != std::string::npos);
  CHECK(refused({"--rdzv", "file:///x", "--master-addr", "h"}).find("contradict") !=
        std::string::npos);
  CHECK(fake.refused({"--rdzv", "file:///x", "p"}).find("with --nnodes") != std::string::npos);
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

TEST_CASE("slurm: a journal is for a requeued job") {
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
            .starts_with("64 --journal: only a job whose hosts"));
  fake.env["SLURM_NODEID"] = "1";
  CHECK(nodes({"--journal", "x"}).journal.empty());
  fake.env.erase("SLURM_STEP_ID");
  fake.env["SLURM_JOB_NODELIST"] = "here,there";
  fake.env["SLURM_TASKS_PER_NODE"] = fake.env["SLURM_JOB_CPUS_PER_NODE"] = "1(x2)";
  CHECK(nodes({"--journal", "x"}).journal == "./x");
  CHECK(nodes({"--journal", "x"}).slurm_job == "7");
}

TEST_CASE("slurm: if the first node's name is 127.0.1.1, it listens where the others see it") {
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
  CHECK((plan.nodes.starter == Starter::srun && plan.nodes.ssh == Words{"srun"}));
  CHECK((plan.nodes.hosts[1].cpus == 8 && plan.nodes.hosts[2].cpus == 4));
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  CHECK((order->by_scheduler && order->environment == Words{"LR=0.1"}));
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

TEST_CASE("slurm: a warning about workers that have a single CPU") {
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
        "64 --end-signal has no effect outside a job of Slurm");
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

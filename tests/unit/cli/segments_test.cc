// Several programs in one job: on a command line, in mpirun's and in srun's files.
#include "cli/segments.h"

#include <random>

#include <doctest/doctest.h>

#include "cli/ssh_order.h"
#include "launcher/node/workers/worker_env.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

TEST_CASE("a ':' separates programs, each with its workers, variables and folder") {
  FakeMachine fake;
  fake.kinds["sub/train.py"] = FileKind::plain;
  fake.env["HOME"] = "/home/me";
  const auto plan = fake.plan({"--grace", "3s", "-np", "2", "-x", "A=1", "a", "-v", ":", "-n", "1",
                               "--chdir", "sub", "-x", "HOME", "train.py", ":", "-m", "pkg.mod"});
  REQUIRE(plan.programs.size() == 3);
  CHECK(plan.nproc == 4);
  CHECK(plan.grace == std::chrono::seconds(3));
  CHECK(plan.env.empty());
  CHECK(plan.programs[0].argv == Words{"a", "-v"});
  CHECK(plan.programs[0].env == EnvVariables{{"A", "1"}});
  CHECK(plan.programs[0].ranks == RankSet{0, 1});
  CHECK(plan.programs[1].argv == Words{"python3", "-u", "train.py"});
  CHECK(plan.programs[1].env == EnvVariables{{"HOME", "/home/me"}});
  CHECK(plan.programs[1].chdir == "sub");
  CHECK(plan.programs[1].ranks == RankSet{2});
  CHECK(plan.programs[2].argv == Words{"python3", "-u", "-m", "pkg.mod"});
  CHECK(plan.programs[2].ranks == RankSet{3});
  CHECK(command_line(plan) == "a -v : python3 -u train.py : python3 -u -m pkg.mod");
}

TEST_CASE("-genv and -gmca hold for all programs, -env for one") {
  FakeMachine fake;
  const auto plan = fake.plan({"-genv", "G", "1", "-env", "E", "2", "a", ":", "b"});
  CHECK(plan.env == EnvVariables{{"G", "1"}});
  CHECK(plan.programs[0].env == EnvVariables{{"E", "2"}});
  CHECK(plan.programs[1].env.empty());
  const auto mca = fake.plan({"-gmca", "btl", "tcp", "-np", "1", "a", ":", "-np", "1", "b"});
  CHECK(mca.programs[0].env.empty());
  CHECK(mca.programs[1].env.empty());
  CHECK(mca.env == EnvVariables{{"OMPI_MCA_btl", "tcp"}});
}

TEST_CASE("after '--' a ':' is an argument, for one program and for the last of several") {
  FakeMachine fake;
  const auto one = fake.plan({"-np", "2", "--", "expr", "a", ":", "b"});
  CHECK(one.programs.empty());
  CHECK(one.argv == Words{"expr", "a", ":", "b"});
  const auto two = fake.plan({"-n", "1", "a", ":", "-n", "1", "--", "expr", "a", ":", "b"});
  REQUIRE(two.programs.size() == 2);
  CHECK(two.programs[1].argv == Words{"expr", "a", ":", "b"});
}

TEST_CASE("each rank gets the arguments, variables and folder of its program") {
  FakeMachine fake;
  const auto plan = fake.plan({"-n", "2", "a", "${rank}", "${program_rank}", ":", "-n", "2", "-x",
                               "V=${program_rank}", "--chdir", "d", "b", "${program_rank}"});
  const WorkerPlace last{.rank = 3, .size = 4};
  CHECK(plan.program_of(3) == 1);
  CHECK(plan.chdir_of(3) == "d");
  CHECK(plan.chdir_of(0) == "");
  CHECK(worker_arguments(plan, last) == Words{"b", "1"});
  CHECK(worker_arguments(plan, {.rank = 1, .size = 4}) == Words{"a", "1", "1"});
  const auto has = [&](int rank, const std::string& item) {
    const auto env = worker_environment(plan, {.rank = rank, .size = 4}, {});
    return std::find(env.begin(), env.end(), item) != env.end();
  };
  CHECK(has(3, "V=1"));
  CHECK_FALSE(has(1, "V=1"));
}

TEST_CASE("a command line of several programs that makes no sense gets one clear line") {
  FakeMachine fake;
  CHECK(fake.refused({":", "a"}) ==
        "64 ':' has no program before it; to pass a ':' to a program, put -- before the program");
  CHECK(fake.refused({"a", ":"}) ==
        "64 ':' has no program after it; to pass a ':' to a program, put -- before the program");
  CHECK(fake.refused({"a", ":", ":", "b"}) == "64 program 1: it names no program");
  CHECK(fake.refused({"a", ":", "-n", "2"}) == "64 program 1: it names no program");
  CHECK(fake.refused({"a", ":", "--timeout", "3", "b"}) ==
        "64 program 1: --timeout holds for the whole job: give it before the first program");
  CHECK(fake.refused({"-n", "0", "a", ":", "b"}) ==
        "64 -n: '0' is not a whole number from 1 to 16384");
  CHECK(fake.refused({"-n", "16000", "a", ":", "-n", "16000", "b"}) ==
        "64 the programs have 32000 workers, more than 16384");
  CHECK(fake.refused({"a", ":", "-x", "RANK=7", "b"}) ==
        "64 program 1: -x RANK: each worker has its own, which dlaunch gives it; leave it out");
  CHECK(fake.refused({"--multi-prog", "a", ":", "b"}) ==
        "64 --multi-prog and ':' contradict each other");
}

TEST_CASE("ranks keep their programs, so the job keeps its size and has no spares") {
  FakeMachine fake;
  const Words programs{"-n", "2", "a", ":", "-n", "2", "b"};
  const auto refused = [&](Words options) {
    options.insert(options.end(), programs.begin(), programs.end());
    return fake.refused(options);
  };
  CHECK(
      refused({"--spares", "1"}) ==
      "64 --spares: a spare takes any rank's place, and ranks of this job run different programs");
  CHECK(refused({"--min-nproc", "2"}).starts_with("64 --min-nproc: "));
  CHECK(refused({"--max-nproc", "8"}).starts_with("64 --max-nproc: "));
  CHECK(refused({"--nnodes", "1:2", "--rdzv", "tcp://here:1"}).starts_with("64 --nnodes: "));
  CHECK(refused({"--max-restarts", "3"}) == "accepted");
}

TEST_CASE("several hosts: programs fill them in order, and each host gets all programs") {
  FakeMachine fake;
  fake.env["PASSED"] = "on";
  const auto plan = fake.plan({"--hosts", "there1:2,there2:2", "-n", "1", "a", ":", "-n", "3", "-x",
                               "PASSED", "--chdir", "d", "-m", "b"});
  CHECK(plan.nodes.total == 4);
  auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  REQUIRE(order->options.segments.size() == 2);
  NodesPlan nodes = plan.nodes;
  nodes.lead = NodesPlan::Lead::no;
  nodes.hosts.clear();
  order->options.nproc = {"2", "--nproc"};
  FakeMachine other;
  const auto there = build_plan(order->options, other.machine(), &nodes);
  REQUIRE_MESSAGE(there, (there ? "" : there.error().what));
  REQUIRE(there->plan.programs.size() == 2);
  CHECK(there->plan.programs[0].ranks == RankSet{0});
  CHECK(there->plan.programs[1].ranks == RankSet{1, 2, 3});
  CHECK(there->plan.programs[1].argv == Words{"python3", "-u", "-m", "b"});
  CHECK(there->plan.programs[1].env == EnvVariables{{"PASSED", "on"}});
  CHECK(there->plan.programs[1].chdir == "d");
  CHECK(what_must_agree(plan) == what_must_agree(there->plan));
  const auto by_hand =
      fake.plan({"--nnodes", "2", "--rdzv", "tcp://here:1", "-n", "1", "a", ":", "-n", "3", "b"});
  CHECK(by_hand.nproc == 2);
  CHECK(what_must_agree(by_hand).ends_with(", programs of ranks 0 : 1-3"));
  CHECK(fake.refused({"--nnodes", "2", "--rdzv", "tcp://here:1", "a", ":", "-n", "2", "b"}) ==
        "64 -n of all programs 3: this is no multiple of 2, the number of hosts, which get equal "
        "shares");
}

TEST_CASE("mpirun's file has a program a line, with comments and a shell's quotes") {
  FakeMachine fake;
  fake.files["apps"] =
      "# two\n\n-np 2 -x 'A=1 2' ./a \"b c\" d\\ e # rest\r\n  -n 1 --chdir x ./f '#' ''\n";
  const auto plan = fake.plan({"--app", "apps"});
  REQUIRE(plan.programs.size() == 2);
  CHECK(plan.nproc == 3);
  CHECK(plan.programs[0].argv == Words{"./a", "b c", "d e"});
  CHECK(plan.programs[0].env == EnvVariables{{"A", "1 2"}});
  CHECK(plan.programs[1].argv == Words{"./f", "#", ""});
  CHECK(plan.programs[1].chdir == "x");
  CHECK(fake.refused({"--app", "nosuch"}) == "66 read nosuch: No such file or directory");
  CHECK(fake.refused({"--app", "apps", "true"}) ==
        "64 --app names a file of programs, and the command line a program, too: 'true'");
  CHECK(fake.refused({"-n", "3", "--app", "apps"}) ==
        "64 -n: apps says how many workers each program has");
  for (const auto& [text, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "65 f: it names no program"},
           {"# nothing\n", "65 f: it names no program"},
           {"-n 1 a\n-n x b\n", "65 f:2: -n: 'x' is not a whole number from 1 to 16384"},
           {"-n 1\n", "65 f:1: it names no program"},
           {"-n 1 'a\n", "65 f:1: a quote has no end"},
           {"--hosts h a\n",
            "65 f:1: --hosts holds for the whole job: give it before the first program"}}) {
    fake.files["f"] = text;
    CHECK(fake.refused({"--app", "f"}) == what);
  }
}

TEST_CASE("srun's file says which ranks run what") {
  FakeMachine fake;
  fake.files["multi"] = "# x\n4-6  hostname\n1,7 echo task:%t \\\n %%\n* echo offset:%o\n";
  const auto plan = fake.plan({"-n", "8", "--multi-prog", "multi"});
  REQUIRE(plan.programs.size() == 3);
  CHECK(plan.programs[0].ranks == RankSet{4, 5, 6});
  CHECK(plan.programs[1].ranks == RankSet{1, 7});
  CHECK(plan.programs[2].ranks == RankSet{0, 2, 3});
  CHECK(worker_arguments(plan, {.rank = 7, .size = 8}) == Words{"echo", "task:7", "%%"});
  CHECK(worker_arguments(plan, {.rank = 2, .size = 8}) == Words{"echo", "offset:1"});
  fake.files["closed"] = "0-1 a\n2 b\n";
  CHECK(fake.plan({"--multi-prog", "closed"}).nproc == 3);  // where nothing else says how many
  fake.files["more"] = "0-1 a\n* b\n";
  CHECK(fake.plan({"-n", "2", "--multi-prog", "more"}).argv == Words{"a"});  // none is left for b
  CHECK(fake.refused({"-n", "4", "--multi-prog", "closed"}) == "64 rank 3 of 4 has no program");
  CHECK(fake.refused({"-n", "2", "--multi-prog", "closed"}) ==
        "64 rank 2 has a program, but the job has 2 workers");
  CHECK(fake.refused({"--multi-prog", "closed", "x"}) ==
        "64 --multi-prog takes one file and nothing after it: dlaunch -n N --multi-prog FILE");
  for (const auto& [text, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"0 a\n0-1 b\n", "65 f:2: rank 0 has a program already"},
           {"* a\n* b\n", "65 f:2: '*' is given twice"},
           {"0\n", "65 f:1: a line is 'RANKS PROGRAM [ARGUMENT ...]'"}}) {
    fake.files["f"] = text;
    CHECK(fake.refused({"-n", "2", "--multi-prog", "f"}) == what);
  }
  fake.files["f"] = "a b\n";
  CHECK(fake.refused({"--multi-prog", "f"}).starts_with("65 f:1: "));
}

TEST_CASE("every file of programs gives programs or one line of error") {
  std::mt19937 random(1);
  const std::string letters = "0123-,*%to# \t\n\n\\'\":-n1xA=/a\r\x01\xff";
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    for (const auto parse : {parse_app_file, parse_multi_prog}) {
      const auto segments = parse(text, "f");
      if (!segments) {
        CHECK(segments.error().what.starts_with("f:"));
        CHECK(segments.error().what.find('\n') == std::string::npos);
      } else {
        for (const auto& segment : *segments) CHECK_FALSE(segment.program.empty());
      }
    }
  }
}

#include "cli/plan_builder.h"

#include <doctest/doctest.h>

#include "tests/unit/cli/fake_machine.h"
#include "tests/unit/cli/scoped_env.h"

using namespace dlaunch;

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
        "64 --nproc asks for 2 workers and -n for 4; on one machine both must be the same");
  CHECK(
      fake.refused({"--nproc", "0", "p"}) ==
      "64 --nproc: '0' is not a whole number from 1 to 16384, auto, gpu, numa, socket, l3 or core");
  CHECK(fake.refused({"-np", "-1", "p"}) == "64 -np: '-1' is not a whole number from 1 to 16384");
  CHECK(fake.refused({"--nproc", "gpu", "p"}) ==
        "64 --nproc: there is no GPU here: /proc/driver/nvidia/gpus lists none");
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

TEST_CASE("binding") {
  FakeMachine fake;
  const auto plan = fake.plan({"--nproc", "2", "--bind", "socket", "p"});
  CHECK(plan.bind == BindPolicy::socket);
  CHECK(plan.cpusets == std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(plan.omp_threads == 4);
  CHECK(fake.plan({"--bind-to", "l3cache", "p"}).bind == BindPolicy::l3);
  CHECK(fake.plan({"--bind-to", "package", "p"}).bind == BindPolicy::socket);
  CHECK(fake.plan({"-bind-to", "none", "-map-by", "slot", "p"}).bind == BindPolicy::none);
  CHECK(fake.refused({"--bind-to", "thread", "p"}) ==
        "64 --bind-to: 'thread' is not one of none, core, l3, numa, socket, gpu");
  CHECK(fake.refused({"--map-by", "node", "p"})
            .starts_with("64 '--map-by' of mpirun: ranks are placed in order (slot)"));
  const auto reported = fake.built({"-n", "2", "--bind", "l3", "--report-bindings", "p"});
  CHECK(reported.plan.report_bindings);
  CHECK(reported.bindings[0] == "socket 0 numa 0: 0 0 | 0 0");
  CHECK(fake.built({"--report-bindings", "p"}).bindings ==
        Words{"no worker is bound: all may use all 8 cores"});
}

TEST_CASE("OMP_NUM_THREADS is the share of the usable CPUs unless the user set it") {
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

TEST_CASE("output: modes and files") {
  FakeMachine fake;
  fake.kinds["afile"] = FileKind::plain;
  CHECK(fake.plan({"--output", "merged", "p"}).output.mode == OutputMode::merged);
  CHECK(fake.plan({"--log-dir", "d", "p"}).output.log_dir == "d");
  CHECK(fake.plan({"--output", "files", "--log-dir", "d", "p"}).output.mode == OutputMode::files);
  CHECK(fake.plan({"--tag-output", "p"}).output.mode == OutputMode::prefix);
  CHECK(fake.refused({"--output", "loud", "p"}) ==
        "64 --output: 'loud' is not one of prefix, merged, raw, files, none");
  for (const std::string file : {"out.txt", "logs/out", "slurm-%j"}) {
    CHECK(fake.refused({"--output", file, "p"}) ==
          "64 --output: '" + file +
              "' is not one of prefix, merged, raw, files, none; --log-dir DIR writes what workers "
              "print to files");
  }
  CHECK(fake.refused({"--output", "files", "p"}) == "64 --output files needs --log-dir");
  CHECK(fake.refused({"--output", "raw", "--log-dir", "d", "p"}) ==
        "64 --output raw leaves nothing for --log-dir: use --output files or prefix");
  CHECK(fake.refused({"--output", "none", "--log-dir", "d", "p"}).starts_with("64 --output none"));
  CHECK(fake.refused({"--log-dir", "afile", "p"}) == "73 --log-dir: afile is a file, not a folder");
  CHECK(fake.plan({"p"}).output.bars == BarMode::first);
  CHECK(fake.plan({"--progress-bars", "final", "p"}).output.bars == BarMode::at_end);
  CHECK(fake.refused({"--progress-bars", "none", "p"}) ==
        "64 --progress-bars: 'none' is not one of first, all, final, lines");
  CHECK(fake.plan({"p"}).output.progress == ProgressMode::automatic);
  CHECK(fake.plan({"--progress", "none", "p"}).output.progress == ProgressMode::none);
  CHECK(fake.plan({"--quiet", "p"}).output.progress == ProgressMode::none);
  CHECK(fake.plan({"--quiet", "--progress", "plain", "p"}).output.progress == ProgressMode::plain);
  CHECK(fake.plan({"--output", "raw", "p"}).output.progress == ProgressMode::none);
  CHECK(fake.refused({"--progress", "bar", "p"}) ==
        "64 --progress: 'bar' is not one of auto, plain, none");
  for (const char* flag :
       {"--timestamps", "--label", "--only-rank=0", "--progress-bars=all", "--progress=plain"}) {
    CHECK(
        fake.refused({"--output", "raw", flag, "p"}).ends_with(" has no effect with --output raw"));
  }
}

TEST_CASE("a pane of tmux for each rank") {
  FakeMachine fake;
  const Plan plan = fake.plan({"--nproc", "3", "--tmux", "p"});
  CHECK(plan.output.tmux);
  CHECK(plan.stdin_to == StdinPlan::none);
  for (const char* flag : {"--output=merged", "--log-dir=d", "--only-rank=0", "--timestamps",
                           "--stdin=all", "--progress-bars=all"}) {
    CHECK(fake.refused({"--tmux", flag, "p"})
              .ends_with(" has no effect with --tmux: each rank writes to its own pane"));
  }
  CHECK(fake.refused({"--tmux", "--nproc", "65", "p"}) ==
        "64 --tmux: 65 ranks are too many for panes; 64 may have some");
  CHECK(fake.refused({"--tmux", "--spares", "1", "p"}).starts_with("64 --tmux: only ranks that"));
  CHECK(fake.refused({"--tmux", "--nnodes", "2", "--rdzv", "tcp://h:1", "p"}) ==
        "64 --tmux: all ranks must be on this host");
  CHECK(fake.refused({"--tmux", "--debugger", "on-failure", "p.py"}) ==
        "64 --debugger on-failure has this terminal, and with --tmux the ranks have others");
  const Plan debugged = fake.plan({"--tmux", "--nproc", "2", "--debugger", "all", "p.py"});
  CHECK_FALSE(debugged.debugging.uses_terminal());
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
  CHECK(fake.plan({"--tee", "3", "p"}).output.log_dir == "");  // everything is on the terminal
  CHECK(fake.refused({"-r", "3", "p"}).starts_with("64 -r needs --log-dir: "));
  CHECK(fake.refused({"-r", "4", "--log-dir", "d", "p"}).starts_with("64 -r: '4'"));
}

TEST_CASE("options of the environment without effect are ignored") {
  FakeMachine fake;
  for (const char* name : {"DLAUNCH_REDIRECTS", "DLAUNCH_SSH_LOGINS", "DLAUNCH_IMAGE",
                           "DLAUNCH_JOURNAL", "DLAUNCH_HEALTH_CHECK", "DLAUNCH_NO_RESTART_CODES"}) {
    CAPTURE(name);
    const ScopedEnv env(name, "3");
    const Plan plan = fake.plan({"p"});
    CHECK(plan.health_check == "");
    CHECK(plan.nodes.journal == "");
  }
  const ScopedEnv folder("DLAUNCH_LOG_DIR", "d"), rank("DLAUNCH_ONLY_RANK", "0");
  CHECK(fake.plan({"--output", "raw", "p"}).output.log_dir == "");
  const ScopedEnv output("DLAUNCH_OUTPUT", "raw");
  CHECK(
      fake.refused({"p"}).starts_with("64 DLAUNCH_OUTPUT raw leaves nothing for DLAUNCH_LOG_DIR"));
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

TEST_CASE("colours are for terminals, and NO_COLOR switches them off") {
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
  const auto plan =
      fake.plan({"--grace", "1.5s", "--timeout", "1h", "--max_restarts", "3", "--error-file",
                 "e.json", "--transport", "tcp", "--interface", "eth0,10.0.0.0/8", "--port-range",
                 "29600-29700", "--host-timeout", "30s", "p"});
  CHECK(plan.nodes.host_timeout == std::chrono::seconds(30));
  CHECK(plan.grace == std::chrono::milliseconds(1500));
  CHECK(plan.timeout == std::chrono::hours(1));
  CHECK(plan.max_restarts.restarts == 3);
  CHECK(plan.error_file == "e.json");
  CHECK(plan.transport == Transport::tcp);
  CHECK(plan.interface == "eth0,10.0.0.0/8");
  CHECK(plan.port_range == "29600-29700");
  CHECK(fake.refused({"--grace", "soon", "p"}) ==
        "64 --grace: 'soon' is not a duration such as 10, 250ms, 1.5s, 2m, 1h");
  CHECK(fake.refused({"--host-timeout", "1s", "p"}) ==
        "64 --host-timeout: 1s is too short, the least is 2 s");
  CHECK(fake.plan({"--hang-timeout", "5m", "--hang-warning", "0", "p"}).hang_timeout ==
        std::chrono::minutes(5));
  CHECK(fake.plan({"--hang-warning", "0", "p"}).hang_warning == Duration::max());
  CHECK(fake.refused({"--max-restarts", "-1", "p"}).starts_with("64 --max-restarts: '-1'"));
  CHECK(fake.refused({"--error-file", "/full/e", "p"}) ==
        "73 --error-file: write /full/e: No space");
  CHECK(fake.refused({"--transport", "rdma", "p"}) ==
        "64 --transport: 'rdma' is not one of auto, shm, tcp");
  CHECK(fake.plan({"--debug", "explain", "p"}).debug == DebugOutput::explain);
  CHECK(fake.refused({"--debug", "all", "p"}) == "64 --debug: 'all' is not one of explain");
  CHECK(fake.refused({"--port-range", "7-3", "p"}) ==
        "64 --port-range: '7-3' is not a range of ports such as 29600-29700");
  CHECK(fake.refused({"-q", "-v", "p"}) == "64 -q and -v contradict each other");
}

TEST_CASE("--nproc counts objects of a kind, or a multiple of them") {
  FakeMachine fake;
  fake.topology = "package:2 numa:2 l3:1 core:2 pu:1";
  CHECK(fake.plan({"--nproc", "socket", "p"}).nproc == 2);
  CHECK(fake.plan({"--nproc", "2:numa", "p"}).nproc == 8);
  CHECK(fake.plan({"--nproc", "core", "p"}).nproc == 8);
  CHECK(fake.plan({"--map-by", "ppr:3:socket", "p"}).nproc == 6);
  CHECK(fake.refused({"--nproc", "sockte", "p"}).ends_with("did you mean 'socket'?"));
  CHECK(fake.refused({"--nproc", "2:sockte", "p"}).ends_with("did you mean 'socket'?"));
  fake.accelerators["xpu"] = 4;
  CHECK(fake.plan({"--nproc-per-node", "xpu", "p"}).nproc == 4);
  CHECK(fake.refused({"--nproc", "hpu", "p"}) ==
        "64 --nproc: there is no hpu here: the kernel shows no such device; give the number");
}

TEST_CASE("accelerate's --multi_gpu asks for all GPUs unless a number is given") {
  FakeMachine fake;
  fake.gpus = {{"0000:17:00.0", "GPU UUID: \t GPU-a\n", "0-3\n"},
               {"0000:18:00.0", "GPU UUID: \t GPU-b\n", "0-3\n"}};
  CHECK(fake.plan({"--multi_gpu", "p"}).nproc == 2);
  CHECK(fake.plan({"--multi_gpu", "--num_processes", "1", "p"}).nproc == 1);
  fake.gpus.clear();
  CHECK(fake.refused({"--multi_gpu", "p"}).starts_with("64 --multi_gpu: there is no GPU here"));
}

TEST_CASE("DeepSpeed's --include and --exclude pick hosts and GPUs") {
  FakeMachine fake;
  fake.files["list"] = "a slots=4\nb slots=4\n";
  const auto env = [](const Plan& plan) {
    return plan.env.empty() ? "" : plan.env[0].first + "=" + plan.env[0].second;
  };
  Plan plan = fake.plan({"--hostfile", "list", "--include", "b:1,3", "p"});
  REQUIRE(plan.nodes.hosts.size() == 1);
  CHECK(plan.nodes.hosts[0].nproc == 2);
  CHECK(env(plan) == "CUDA_VISIBLE_DEVICES=1,3");
  plan = fake.plan({"--hostfile", "list", "--exclude", "a@b:3", "p"});
  CHECK(plan.nodes.total == 3);
  CHECK(env(plan) == "CUDA_VISIBLE_DEVICES=0,1,2");
  CHECK(env(fake.plan({"--hostfile", "list", "--include", "a", "p"})).empty());
  plan = fake.plan({"--include", "localhost:0,2", "p"});
  CHECK(plan.nproc == 2);
  CHECK(env(plan) == "CUDA_VISIBLE_DEVICES=0,2");
  fake.env["CUDA_VISIBLE_DEVICES"] = "4,5";
  CHECK(fake.refused({"--include", "localhost:0,3", "p"}).find("GPU 3 is not among those") !=
        std::string::npos);
  fake.env.erase("CUDA_VISIBLE_DEVICES");
  CHECK(fake.refused({"--hostfile", "list", "--include", "c", "p"}).find("is not in the list") !=
        std::string::npos);
  CHECK(fake.refused({"--hostfile", "list", "--include", "a:4", "p"}).find("has 4 slots") !=
        std::string::npos);
  CHECK(fake.refused({"--hostfile", "list", "--include", "a:1@b:2", "p"}).find("same GPUs") !=
        std::string::npos);
  CHECK(fake.refused({"--hostfile", "list", "--exclude", "a@b", "p"}).ends_with("no host is left"));
  CHECK(fake.refused({"--include", "elsewhere", "p"}).find("localhost:0,1") != std::string::npos);
}

TEST_CASE("streams may be chosen by local rank, as torchrun does") {
  FakeMachine fake;
  const Plan plan =
      fake.plan({"--nproc", "3", "--log-dir", "d", "-r", "0:1,1:2", "-t", "1:2", "p"});
  CHECK(plan.output.tee == StreamSet::both);
  CHECK(plan.output.tee_of.at(0) == StreamSet::err);
  CHECK(plan.output.tee_of.at(1) == StreamSet::both);
  CHECK(plan.output.tee_of.count(2) == 0);
  CHECK(fake.refused({"--log-dir", "d", "-r", "0:4", "p"}).find("-r: '4'") != std::string::npos);
  CHECK(fake.refused({"--log-dir", "d", "-r", "0", "-t", "0:1,0:2", "p"}).find("twice") !=
        std::string::npos);
}

TEST_CASE("--virtual-local-rank gives each worker one device, its only one") {
  FakeMachine fake;
  Plan plan = fake.plan({"--nproc", "2", "--virtual-local-rank", "p"});
  CHECK(plan.virtual_local_rank);
  CHECK(plan.gpus == Words{"0", "1"});
  fake.env["CUDA_VISIBLE_DEVICES"] = "4,6";
  CHECK(fake.plan({"--nproc", "2", "--virtual-local-rank", "p"}).gpus == Words{"4", "6"});
  CHECK(fake.refused({"--nproc", "3", "--virtual-local-rank", "p"}).find("2 are visible: 4,6") !=
        std::string::npos);
}

TEST_CASE("torchrun's --numa-binding is --bind near the GPUs, or by cores without them") {
  FakeMachine fake;
  CHECK(fake.plan({"--numa-binding", "node", "p"}).bind == BindPolicy::numa);
  CHECK(fake.plan({"--numa-binding", "core-complex", "p"}).bind == BindPolicy::l3);
  CHECK(fake.plan({"--numa-binding", "exclusive", "p"}).bind == BindPolicy::core);
  fake.gpus = {{"0000:17:00.0", "GPU UUID: \t GPU-a\n", "0-3\n"}};
  CHECK(fake.plan({"--numa-binding", "node", "p"}).bind == BindPolicy::gpu);
  CHECK(fake.refused({"--numa-binding", "nodes", "p"}).ends_with("did you mean 'node'?"));
  CHECK(fake.plan({"--bind-to", "core:overload-allowed", "p"}).bind == BindPolicy::core);
  CHECK(fake.plan({"--bind-to", "hwthread", "p"}).bind == BindPolicy::core);
  CHECK(fake.refused({"--bind", "croe", "p"}).ends_with("did you mean 'core'?"));
}

TEST_CASE("--run-path runs a script of any name, and an empty PYTHON_EXEC counts as not set") {
  FakeMachine fake;
  CHECK(fake.plan({"--run-path", "script", "x"}).argv == Words{"python3", "-u", "script", "x"});
  CHECK(fake.plan({"--run-path", "--no-python", "script"}).argv ==
        Words{"python3", "-u", "script"});
  fake.env["PYTHON_EXEC"] = "";
  CHECK(fake.plan({"-m", "pkg"}).argv == Words{"python3", "-u", "-m", "pkg"});
}

TEST_CASE("an error about a variable names the option that set it, not a later one") {
  FakeMachine fake;
  CHECK(fake.refused({"-x", "=1", "--mixed-precision", "fp16", "p"}) == "64 -x: '=1' has no name");
  CHECK(fake.refused({"--autotune", "-genv", "RANK", "1", "-x", "A=1", "p"})
            .starts_with("64 -genv RANK: each worker has its own"));
  CHECK(fake.refused({"--env", "OMP_NUM_THREADS=2", "--omp-threads", "3", "--autotune", "p"}) ==
        "64 --omp-threads and --env OMP_NUM_THREADS set the same thing");
  CHECK(fake.refused({"-n", "1", "a", ":", "-x", "=2", "--autotune", "b"}).find("-x: '=2'") !=
        std::string::npos);
}

TEST_CASE("an error about a wrong number of workers says what is missing") {
  FakeMachine fake;
  CHECK(fake.refused({"--nproc", "2:", "true"}) ==
        "64 --nproc 2:: a kind must follow the ':', as in 2:numa");
  CHECK(fake.refused({"-n", "1", "a", ":", "--nproc", "gpu", "b"})
            .ends_with("each program has its own number of workers: say -n"));
}

TEST_CASE("a run folder has the events and the report, so no option names them once more") {
  FakeMachine fake;
  const Plan plan = fake.plan({"--run-dir", "runs/1", "p"});
  CHECK(plan.run_dir == "runs/1");
  CHECK(plan.events_file == "runs/1/events.jsonl");
  CHECK(plan.error_file == "runs/1/error.json");
  CHECK(fake.refused({"--run-dir", "d", "--events", "e", "p"}).ends_with("d/events.jsonl"));
  CHECK(fake.refused({"--run-dir", "d", "--error-file", "e", "p"}).ends_with("d/error.json"));
}

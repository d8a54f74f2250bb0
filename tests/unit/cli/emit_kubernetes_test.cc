#include "cli/emit_kubernetes.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "base/version.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

namespace {

using Words = std::vector<std::string>;

Plan plan_of(int min_nodes, int max_nodes) {
  Plan plan;
  plan.nodes.min = min_nodes;
  plan.nodes.max = max_nodes;
  plan.env = {{"A", "two  words"}};
  return plan;
}

Result<KubernetesJob> job_of(const Words& words, const Plan& plan = plan_of(4, 4)) {
  auto options = read_options(words);
  REQUIRE_MESSAGE(options, (options ? "" : options.error().what));
  return kubernetes_job(*options, plan);
}

std::string emit_refused(const Words& words) {
  const auto job = job_of(words);
  return job ? "accepted" : job.error().what;
}

// The file in golden/, with this version in it. DL_RECORD=1 writes it again.
void check_golden(const std::string& name, const Words& words, const Plan& plan) {
  auto job = job_of(words, plan);
  REQUIRE_MESSAGE(job, (job ? "" : job.error().what));
  job->secret = "0123456789abcdef";
  std::string text = kubernetes_yaml(*job);
  text.replace(text.find(DLAUNCH_VERSION), std::string(DLAUNCH_VERSION).size(), "VERSION");
  const std::string path = std::string(GOLDEN_DIR) + "/" + name;
  if (std::getenv("DL_RECORD") != nullptr) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  CHECK(text == golden.str());
}

}  // namespace

TEST_CASE("Kubernetes does not retry a killed worker unless dlaunch continues") {
  const auto tried_again = [](const Plan& plan) {
    const auto job = job_of({"--emit", "kubernetes", "--image", "i", "train"}, plan);
    const std::string text = kubernetes_yaml(*job);
    const bool killed = text.find("values: [69, 137, 143]") != std::string::npos;
    CHECK(killed != (text.find("values: [69, 143]") != std::string::npos));
    return killed;
  };
  Plan restarts = plan_of(4, 4);
  CHECK(!tried_again(restarts));
  restarts.max_restarts.restarts = 1;
  CHECK(tried_again(restarts));
  CHECK(tried_again(plan_of(2, 4)));
}

TEST_CASE("a pod's GPUs are those of --gpus, whatever this machine has") {
  FakeMachine fake;  // has none
  fake.env["CUDA_VISIBLE_DEVICES"] = "7";
  const auto pod = [&](Words words) {
    words.insert(words.end(), {"--nnodes", "2", "--rdzv", "tcp://localhost:1", "train"});
    auto options = read_options(words);
    REQUIRE(options);
    CHECK(check_emit(*options));
    return build_plan(*options, as_pod(fake.machine(), *options));
  };
  const Words emit = {"--emit", "kubernetes", "--image", "i", "--gpus", "4"};
  auto words = emit;
  words.insert(words.end(), {"--nproc", "gpu", "--isolate-gpus", "--bind", "gpu"});
  const auto built = pod(words);
  REQUIRE_MESSAGE(built, (built ? "" : built.error().what));
  CHECK(built->plan.nproc == 4);
  for (const Words& asks : {Words{"--nproc", "gpu"}, {"--bind", "gpu"}, {"--isolate-gpus"}}) {
    Words without = {"--emit", "kubernetes", "--image", "i"};
    without.insert(without.end(), asks.begin(), asks.end());
    without.emplace_back("train");
    const auto checked = check_emit(*read_options(without));
    REQUIRE(!checked);
    CHECK(checked.error().what.find("needs --gpus") != std::string::npos);
  }
}

TEST_CASE("--emit refuses the options of several sites") {
  const auto checked =
      check_emit(*read_options({"--emit", "kubernetes", "--image", "i", "--sites", "s", "p"}));
  REQUIRE(!checked);
  CHECK(checked.error().what ==
        "--sites and --emit contradict each other: what is written has a secret of its own, and "
        "its pods have no address that other sites reach");
}

TEST_CASE(
    "options for sites, which the environment may set for other jobs, do not reach the pods") {
  const auto job = job_of({"--emit", "kubernetes", "--image", "i", "--site-linger", "5m", "p"});
  REQUIRE(job);
  CHECK(kubernetes_yaml(*job).find("site-linger") == std::string::npos);
}

TEST_CASE("files and warnings of a pod do not concern this machine") {
  FakeMachine fake;
  fake.terminal = true;
  fake.kinds["logs"] = FileKind::plain;
  fake.env = {{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}};  // no more: refused elsewhere
  auto options = read_options({"--emit", "kubernetes", "--image", "i", "--gpus", "4", "--nproc",
                               "20", "--bind", "gpu", "--error-file", "/full/e.json", "--log-dir",
                               "logs", "--secret-file", "none", "p"});
  REQUIRE(options);
  const auto built = build_plan(*options, as_pod(fake.machine(), *options));
  REQUIRE_MESSAGE(built, (built ? "" : built.error().what));
  CHECK(built->warnings == Words{});
}

TEST_CASE("the YAML equals the recorded one") {
  Plan restarts = plan_of(4, 4);
  restarts.max_restarts.restarts = 3;
  check_golden("job.yaml",
               {"--emit", "kubernetes", "--image", "reg/train:1", "--nnodes", "4", "--nproc", "8",
                "--gpus", "8", "--max-restarts", "3", "--timestamps", "./Train.py", "--lr",
                "$(LR) \"x\"", "two\nlines"},
               restarts);
  check_golden("jobset.yaml",
               {"--emit", "jobset", "--image", "train", "--nnodes", "2:4", "--job-id", "night-run",
                "-n", "16", "-m", "pkg.train"},
               plan_of(2, 4));
}

TEST_CASE("Kubeflow Trainer and LeaderWorkerSet: the YAML equals the recorded one") {
  check_golden("trainjob.yaml",
               {"--emit", "trainjob", "--image", "reg/train:1", "--nnodes", "4", "--nproc", "8",
                "--gpus", "8", "--queue", "team-a", "./train", "--lr", "0.1"},
               plan_of(4, 4));
  check_golden("lws.yaml",
               {"--emit", "lws", "--image", "serve", "--nnodes", "2", "--gpus", "4", "--job-id",
                "serve", "./serve"},
               plan_of(2, 2));
}

TEST_CASE("Kueue: the object that Kueue admits has the queue, and may accept fewer pods") {
  const auto text = [](const char* kind, const Plan& plan) {
    return kubernetes_yaml(
        *job_of({"--emit", kind, "--image", "i", "--queue", "q", "train"}, plan));
  };
  for (const auto& [kind, admitted] : {std::pair("kubernetes", "kind: Job\n"),
                                       {"jobset", "kind: JobSet\n"},
                                       {"trainjob", "kind: TrainJob\n"},
                                       {"lws", "kind: LeaderWorkerSet\n"}}) {
    const std::string head = std::string(admitted) +
                             "metadata:\n  name: train\n  labels:\n    "
                             "kueue.x-k8s.io/queue-name: \"q\"\n";
    CHECK(text(kind, plan_of(4, 4)).find(head) != std::string::npos);
    CHECK(text(kind, plan_of(4, 4)).find("job-min-parallelism") == std::string::npos);
  }
  CHECK(text("kubernetes", plan_of(2, 4)).find("kueue.x-k8s.io/job-min-parallelism: \"2\"") !=
        std::string::npos);
  CHECK(text("jobset", plan_of(2, 4)).find("job-min-parallelism") == std::string::npos);
}

TEST_CASE("a group of a LeaderWorkerSet begins again with new pods unless dlaunch continues") {
  const auto policy = [](const Plan& plan) {
    const std::string text =
        kubernetes_yaml(*job_of({"--emit", "lws", "--image", "i", "serve"}, plan));
    CHECK(text.find("restartPolicy: Never") == std::string::npos);  // of pods it may not be
    return text.find("    restartPolicy: RecreateGroupOnPodRestart\n") != std::string::npos;
  };
  CHECK(policy(plan_of(4, 4)));
  CHECK_FALSE(policy(plan_of(2, 4)));
}

TEST_CASE("names are valid for Kubernetes") {
  const auto name = [](const char* program) {
    return job_of({"--emit", "kubernetes", "--image", "i", program})->name;
  };
  CHECK(name("/opt/Train_v2.py") == "train-v2-py");
  CHECK(name("./a.out") == "a-out");
  CHECK(name("3d") == "dlaunch");
  CHECK(name("x-") == "x");
  CHECK(name("/bin/true") == "dlaunch");  // unquoted it is no string in YAML
  CHECK(name("abcdefghijabcdefghijabcdefghijabcdefghij12345") ==
        "abcdefghijabcdefghijabcdefghijabcdefghij");
  for (const char* bad : {"Upper", "a.b", "-a", "a-", "1a", "a_b", "on", "null"}) {
    CHECK(emit_refused({"--emit", "kubernetes", "--image", "i", "--job-id", bad, "p"})
              .starts_with("--job-id: '" + std::string(bad) + "' is no name for Kubernetes"));
  }
}

TEST_CASE("contradicting options are refused") {
  const auto with = [](const Words& more) {
    Words words = {"--emit", "kubernetes", "--image", "i"};
    words.insert(words.end(), more.begin(), more.end());
    words.emplace_back("p");
    return emit_refused(words);
  };
  CHECK(with({}) == "accepted");
  CHECK(with({"--hosts", "a"}) ==
        "--hosts and --emit contradict each other: Kubernetes chooses the hosts");
  CHECK(with({"--node-rank", "1"}).starts_with("--node-rank and --emit contradict"));
  CHECK(with({"--topology", "t"}).starts_with("--topology and --emit contradict"));
  CHECK(with({"--rack", "r"}).starts_with("--rack and --emit contradict"));
  CHECK(with({"--rdzv", "tcp://a:1"}).starts_with("--rdzv and --emit contradict"));
  CHECK(with({"--secret-file", "s"}).starts_with("--secret-file and --emit contradict"));
  CHECK(with({"--queue", "team.a-1"}) == "accepted");
  for (const char* bad : {"Team", "-a", "a_b", "a-", "a b"}) {
    CHECK(with({"--queue", bad}) == "--queue: '" + std::string(bad) +
                                        "' is no name of a queue: up to 63 of a-z, 0-9, - and .");
  }
  CHECK(check_emit(*read_options({"--queue", "q", "p"})).error().what ==
        "--queue has no effect without --emit");
  CHECK(with({"--gpus", "0"}).starts_with("--gpus: '0'"));
  CHECK(emit_refused({"--emit", "kubernetes", "p"}) == "--emit needs --image");
  CHECK(emit_refused({"--emit", "nomad", "--image", "i", "p"}) ==
        "--emit: 'nomad' is not one of kubernetes, jobset, trainjob, lws");
  const auto alone = read_options({"--gpus", "1", "p"});
  CHECK(check_emit(*alone).error().what ==
        "--gpus has no effect without --emit; did you mean --nproc 1, a worker for each GPU?");
  CHECK(check_emit(*read_options({"--gpus", "1", "--emit", "jobset", "p"})));
}

TEST_CASE("several programs are written as on a command line") {
  FakeMachine fake;
  fake.files["apps"] = "-n 1 -x A=1 ./srv x\n-n 3 --chdir d -m cli ':'\n";
  fake.files["wrong"] = "-n 1 ./srv ':'\n-n 3 cli\n";
  fake.files["multi"] = "0-3 cli\n";
  const auto command = [&](const Words& words) -> Result<KubernetesJob> {
    auto options = read_options(words);
    REQUIRE(options);
    const auto built = build_plan(*options, fake.machine());
    REQUIRE_MESSAGE(built, (built ? "" : built.error().what));
    options->segments = built->segments;
    return kubernetes_job(*options, built->plan);
  };
  const Words start{"--emit", "kubernetes", "--image", "i"};
  const auto with = [&](const Words& more) {
    Words words = start;
    words.insert(words.end(), more.begin(), more.end());
    return command(words);
  };
  const Words programs{"-n", "1",       "--env", "A=1",      "./srv", "x",   ":", "-n",
                       "3",  "--chdir", "d",     "--module", "--",    "cli", ":"};
  const auto job = with({"--app", "apps"});
  REQUIRE(job);
  CHECK(job->name == "srv");
  CHECK(Words(job->command.end() - 15, job->command.end()) == programs);
  const auto again = read_options({job->command.begin() + 1, job->command.end()});
  REQUIRE(again);
  REQUIRE(again->segments.size() == 2);
  CHECK(again->segments[1].program == Words{"cli", ":"});
  CHECK(with({"--app", "wrong"}).error().what ==
        "--emit: ./srv has an argument ':', so it must be the last of the programs");
  CHECK(with({"--multi-prog", "multi"}).error().what ==
        "--emit: dlaunch cannot write --multi-prog into the file: give the programs with ':' "
        "between them");
}

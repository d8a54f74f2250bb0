// --dry-run prints each option that has an effect on a job.
#include <signal.h>

#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "cli/option_table.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

namespace {

struct Case {
  Words words;         // with the option
  std::string line;    // which is to be there then
  Words without = {};  // beside the program
};

constexpr const char* kTwoSites = "alps=here:7000,sea=far:7000";
const Words kAlps = {"--sites", kTwoSites, "--secret-file", "secret"};
Words with_site(const char* option, const char* value) {
  Words words = kAlps;
  words.insert(words.end(), {option, value});
  return words;
}
const Words kTwo = {"-H", "here,a", "--max-restarts", "1"};

const std::map<std::string, Case> kCases = {
    {"nproc", {{"--nproc", "2"}, "workers: 2 on here"}},
    {"np", {{"-n", "2"}, "workers: 2 on here"}},
    {"env", {{"-x", "A=b c"}, "env: A='b c'"}},
    {"chdir", {{"--chdir", "there"}, "working folder: there"}},
    {"module", {{"-m"}, "command: python3 -u -m p"}},
    {"bind", {{"--bind", "core"}, "bind: core"}},
    {"isolate-gpus", {{"--isolate-gpus"}, "rank 0: GPU GPU-a"}},
    {"omp-threads", {{"--omp-threads", "3"}, "OMP_NUM_THREADS: 3"}},
    {"run-path", {{"--run-path"}, "command: python3 -u p"}},
    {"role", {{"--role", "trainer"}, "role: trainer"}},
    {"roles", {{"--roles", "worker=3"}, "role worker: rank 0-2"}},
    {"framework", {{"--framework", "tensorflow"}, "framework: tensorflow"}},
    {"horovod", {{"--horovod"}, "import horovod: dlaunch.horovod"}},
    {"virtual-local-rank", {{"--virtual-local-rank"}, "LOCAL_RANK: 0 for all"}},
    {"numa-binding", {{"--numa-binding", "socket"}, "bind: socket"}},
    {"log-line-prefix-template",
     {{"--log-line-prefix-template", "${rank}: "}, "before each line: ${rank}: "}},
    {"output", {{"--output", "merged"}, "output: merged"}},
    {"log-dir", {{"--log-dir", "logs"}, "log folder: logs"}},
    {"redirects",
     {{"--log-dir", "logs", "--redirects", "1"}, "also shown: stderr", {"--log-dir", "logs"}}},
    {"tee",
     {{"--log-dir", "logs", "-r", "3", "--tee", "1"},
      "also shown: stdout",
      {"--log-dir", "logs", "-r", "3"}}},
    {"only-rank", {{"--only-rank", "0"}, "shown ranks: 0"}},
    {"progress-bars", {{"--progress-bars", "all"}, "progress bars: all"}},
    {"progress", {{"--progress", "plain"}, "progress: plain"}},
    {"tmux", {{"--tmux"}, "panes of tmux: one for each rank"}},
    {"timestamps", {{"--timestamps"}, "time stamps: before each line"}},
    {"stdin", {{"--stdin", "none"}, "stdin: none"}},
    {"grace", {{"--grace", "5"}, "grace: 5 s"}},
    {"timeout", {{"--timeout", "1h"}, "time-out: 3600 s"}},
    {"max-restarts", {{"--max-restarts", "3/1h"}, "restarts: 3/1h"}},
    {"restart-scope", {{"--restart-scope", "worker"}, "restart scope: worker"}},
    {"no-restart-codes",
     {{"--max-restarts", "1", "--no-restart-codes", "3,7-9"},
      "no restart after: exit codes 3,7-9",
      {"--max-restarts", "1"}}},
    {"same-failure-limit",
     {{"--max-restarts", "5", "--same-failure-limit", "3"},
      "same failure: 3 times ends the job",
      {"--max-restarts", "5"}}},
    {"spares", {{"--spares", "2"}, "spares: 2"}},
    {"min-nproc", {{"--nproc", "4", "--min-nproc", "2"}, "sizes: 2 to 4", {"--nproc", "4"}}},
    {"max-nproc", {{"--max-nproc", "2"}, "sizes: 1 to 2"}},
    {"join-timeout", {{"--join-timeout", "60"}, "join time-out: 60 s"}},
    {"hang-timeout", {{"--hang-timeout", "5m"}, "hang time-out: 300 s"}},
    {"hang-warning", {{"--hang-warning", "0"}, "hang warning: never"}},
    {"nccl-record", {{"--nccl-record", "kernels"}, "NCCL record: kernels"}},
    {"straggler", {{"--straggler", "evict"}, "stragglers: evict"}},
    {"straggler-ratio", {{"--straggler-ratio", "1.5"}, "straggler ratio: 1.5"}},
    {"straggler-window", {{"--straggler-window", "4"}, "straggler window: 4 s"}},
    {"chaos",
     {{"--chaos", "kill=2s,stop=4s:500ms,seed=7"},
      "chaos: kill every 2 s, stop every 4 s for 500 ms, seed 7"}},
    {"debugger", {{"--debugger", "all", "--debugger-command", "true"}, "debugger: all ranks"}},
    {"debugger-command",
     {{"--debugger", "all", "--debugger-command", "xterm -e gdb --args"},
      "debugger's command: xterm -e gdb --args p",
      {"--debugger", "all", "--debugger-command", "true"}}},
    {"stop-at-start", {{"--stop-at-start", "0"}, "stopped at their start: rank 0"}},
    {"error-file", {{"--error-file", "e.json"}, "error file: e.json"}},
    {"events", {{"--events", "e.jsonl"}, "events: e.jsonl"}},
    {"goodput", {{"--goodput"}, "goodput: in the report at the end"}},
    {"trace", {{"--trace", "t.json"}, "trace: t.json"}},
    {"run-dir", {{"--run-dir", "run"}, "run folder: run\nevents: run/events.jsonl"}},
    {"metrics", {{"--metrics", "9400"}, "metrics: 127.0.0.1:9400"}},
    {"hosts", {{"-H", "a:2"}, "workers: 2 on a, by ssh"}},
    {"hostfile", {{"--hostfile", "list"}, "workers: 3 on a, by ssh"}},
    {"ssh-command",
     {{"-H", "a", "--ssh-command", "ssh -v"}, "workers: 1 on a, by ssh -v", {"-H", "a"}}},
    {"ssh-port", {{"-H", "a", "--ssh-port", "22"}, "workers: 1 on a:22, by ssh", {"-H", "a"}}},
    {"ssh-identity-file",
     {{"-H", "a", "--ssh-identity-file", "key"}, "workers: 1 on a, by ssh -i key", {"-H", "a"}}},
    {"include",
     {{"-H", "a:4", "--include", "a:0,2"}, "env: CUDA_VISIBLE_DEVICES=0,2", {"-H", "a:2"}}},
    {"exclude", {{"-H", "a:2,b", "--exclude", "b"}, "workers: 2 on a, by ssh", {"-H", "a,b"}}},
    {"ssh-logins", {{"-H", "a", "--ssh-logins", "4"}, "logins at the same time: 4", {"-H", "a"}}},
    {"ssh-tree", {{"-H", "a", "--ssh-tree", "auto"}, "logins by started hosts: auto", {"-H", "a"}}},
    {"host-discovery-script",
     {{"--host-discovery-script", "./list", "--nnodes", "1:2", "--nproc", "1"},
      "workers: 1 on each of 1 to 2 hosts that ./list lists, by ssh"}},
    {"health-check",
     {{"-H", "here,a", "--max-restarts", "1", "--health-check", "./well now"},
      "health check: './well now'",
      kTwo}},
    {"nnodes",
     {{"--nnodes", "1:2", "--rdzv", "tcp://here:29400"},
      "hosts: 1 to 2, led by the first host, at here:29400"}},
    {"node-rank",
     {{"--nnodes", "2", "--rdzv", "tcp://here:29400", "--node-rank", "0"},
      "number of this host: 0",
      {"--nnodes", "2", "--rdzv", "tcp://here:29400"}}},
    {"topology",
     {{"-H", "here,a,b:2,c", "--topology", "racks"},
      "topology: racks\norder of hosts: here, b in s0.s1; a in s0.s2; c in no rack",
      {"-H", "here,a,b:2,c"}}},
    {"rack",
     {{"--nnodes", "2", "--rdzv", "tcp://here:29400", "--rack", "room1.rack7"},
      "rack: room1.rack7",
      {"--nnodes", "2", "--rdzv", "tcp://here:29400"}}},
    {"host-timeout",
     {{"-H", "here,a", "--max-restarts", "1", "--host-timeout", "9"}, "host time-out: 9 s", kTwo}},
    {"rdzv", {{"--rdzv", "tcp://127.0.0.1:29400"}, "store: tcp://127.0.0.1:29400"}},
    {"master-addr", {{"--master-addr", "here"}, "master: 10.0.0.1:reserved at start"}},
    {"master-port", {{"--master-port", "29500"}, "master: 127.0.0.1:29500"}},
    {"job-id", {{"--job-id", "name"}, "job id: name"}},
    {"secret-file", {{"--secret-file", "secret"}, "secret: secret"}},
    {"journal",
     {{"--nnodes", "2", "--rdzv", "tcp://here:29400", "--max-restarts", "1", "--journal", "/j"},
      "journal: /j",
      {"--nnodes", "2", "--rdzv", "tcp://here:29400", "--max-restarts", "1"}}},
    {"sites", {kAlps, "sites: alps=here:7000,sea=far:7000"}},
    {"site", {{"--sites", kTwoSites, "--secret-file", "secret", "--site", "sea"}, "site: sea"}},
    {"site-grace", {with_site("--site-grace", "30s"), "site grace: 30 s", kAlps}},
    {"site-timeout", {with_site("--site-timeout", "2s"), "site time-out: 2 s", kAlps}},
    {"site-wait", {with_site("--site-wait", "2m"), "site wait: 120 s", kAlps}},
    {"site-linger", {with_site("--site-linger", "2s"), "site linger: 2 s", kAlps}},
    {"site-journal", {with_site("--site-journal", "j"), "site journal: /work/j", kAlps}},
    {"transport", {{"--transport", "tcp"}, "transport: tcp"}},
    {"verify", {{"--verify", "full"}, "verify: full"}},
    {"debug", {{"--debug", "explain"}, "debug: explain"}},
    {"interface", {{"--interface", "lo"}, "interface: lo"}},
    {"port-range", {{"--port-range", "2000-2100"}, "ports: 2000-2100"}},
    {"tls", {{"--tls"}, "connections: TLS 1.3"}},
    {"quiet", {{"--quiet"}, "messages: errors only"}},
};

// What they say is seen elsewhere, or is not of the job; or they say what is so in any case.
const std::set<std::string> kOthers = {"no-python",  // in the command
                                       "cflags",
                                       "check-build",
                                       "libs",
                                       "multi-gpu",
                                       "app",
                                       "multi-prog",  // segments_test.cc
                                       "end-signal",  // of Slurm's jobs, below
                                       "report-bindings",
                                       "standalone",
                                       "rdzv-backend",
                                       "label",
                                       "monitor-interval",
                                       "allow-run-as-root",
                                       "oversubscribe",
                                       "emit",
                                       "image",
                                       "queue",
                                       "gpus",
                                       "config",
                                       "dry-run",
                                       "verbose",
                                       "help",
                                       "help-all",
                                       "version"};

bool has_line(const Plan& plan, const std::string& line) {
  return ("\n" + describe(plan)).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("--dry-run shows every option that differs from its default") {
  FakeMachine fake;
  fake.files["list"] = "a slots=3\n";
  fake.files["racks"] =
      "SwitchName=s1 Nodes=here,b\nSwitchName=s2 Nodes=a\nSwitchName=s0 Switches=s[1-2]\n";
  fake.gpus = {{"0000:17:00.0", "GPU UUID: \t GPU-a\n", "0-3\n"}};
  for (const OptionRow& row : option_table()) {
    const std::string option(row.name);
    CAPTURE(option);
    if (kOthers.contains(option)) continue;
    REQUIRE(kCases.contains(option));
    const Case& one = kCases.at(option);
    Words words = one.words, usual = one.without;
    words.emplace_back("p");
    usual.emplace_back("p");
    const Plan plan = fake.plan(words);
    INFO(describe(plan));
    CHECK(has_line(plan, one.line));
    CHECK_FALSE(has_line(fake.plan(usual), one.line));
  }
}

TEST_CASE("--dry-run says when workers of a Slurm job learn of its end, and the fewest workers") {
  FakeMachine fake;
  fake.env["SLURM_JOB_ID"] = "7";
  fake.time_left = std::chrono::minutes(10);
  CHECK(has_line(fake.plan({"--end-signal", "USR1@5m", "p"}), "end signal: SIGUSR1 after 300 s"));
  const Plan several = fake.plan({"-H", "here:2,a:2", "--min-nproc", "3", "p"});
  CHECK(has_line(several, "fewest workers: 3"));
}

// srun's options, from `srun --help` of Slurm 22.05 to 24.11.
#include <algorithm>
#include <charconv>

#include "cli/foreign_tables.h"

namespace dlaunch {
namespace {

using Values = std::vector<std::string>;

// "90", "90:30", "1:30:00", "2-12", "2-12:30" -> seconds; negative: malformed.
long long slurm_seconds(std::string_view text) {
  const auto dash = text.find('-');
  std::vector<long long> parts;
  const auto add = [&](std::string_view piece) {
    long long number = -1;
    const auto end = piece.data() + piece.size();
    const auto got = std::from_chars(piece.data(), end, number);
    parts.push_back(got.ec == std::errc() && got.ptr == end && number < 1000000 ? number : -1);
  };
  if (dash != text.npos) add(text.substr(0, dash));
  for (const auto piece : split_words(text.substr(dash == text.npos ? 0 : dash + 1), ':')) {
    add(piece);
  }
  if (parts.empty() || std::any_of(parts.begin(), parts.end(), [](auto n) { return n < 0; })) {
    return -1;
  }
  if (dash != text.npos) {
    parts.resize(4);
    return ((parts[0] * 24 + parts[1]) * 60 + parts[2]) * 60 + parts[3];
  }
  if (parts.size() == 1) return parts[0] * 60;
  if (parts.size() == 2) return parts[0] * 60 + parts[1];
  return parts.size() == 3 ? (parts[0] * 60 + parts[1]) * 60 + parts[2] : -1;
}

Result<Meaning> time_limit(const Values& values) {
  if (values[0] == "UNLIMITED" || values[0] == "INFINITE") return Meaning{.words = {"--timeout=0"}};
  const long long seconds = slurm_seconds(values[0]);
  if (seconds < 0) return not_here("'{}' is not MINUTES, H:M:S or D-H:M:S", values[0]);
  return Meaning{.words = {fmt::format("--timeout={}s", seconds)}};
}

Result<Meaning> nodes(const Values& values) {
  std::string text = values[0];
  std::replace(text.begin(), text.end(), '-', ':');
  return Meaning{.words = {"--nnodes=" + text}};
}

// "ALL,A=1,B": A is set; B is passed on like all others.
Result<Meaning> exported(const Values& values) {
  Meaning meaning;
  bool all = false;
  bool names = false;
  for (const auto item : split_words(values[0], ',')) {
    all = all || item == "ALL";
    if (item == "NONE" || item == "NIL") {
      return not_here(
          "workers inherit the environment: env -i NAME=VALUE … dlaunch starts them "
          "with less");
    }
    names = names || (item != "ALL" && item.find('=') == item.npos);
    if (item.find('=') != item.npos) meaning.words.push_back("--env=" + std::string(item));
  }
  if (!all && (names || !meaning.words.empty())) {
    meaning.note = "workers inherit the rest of the environment as well";
  } else if (meaning.words.empty()) {
    meaning.note = "workers inherit the environment in any case";
  }
  return meaning;
}

// "[R:]USR1[@60]", in seconds; 60 if none are given.
Result<Meaning> end_signal(const Values& values) {
  std::string text = values[0];
  if (text.starts_with("R:") || text.starts_with("B:")) text.erase(0, 2);
  const auto at = text.find('@');
  std::string name = text.substr(0, at);
  for (const auto& [number, word] :
       {std::pair("1", "HUP"), std::pair("2", "INT"), std::pair("10", "USR1"),
        std::pair("12", "USR2"), std::pair("15", "TERM")}) {
    if (name == number) name = word;
  }
  return Meaning{.words = {fmt::format("--end-signal={}@{}s", name,
                                       at == text.npos ? "60" : text.substr(at + 1))}};
}

Result<Meaning> cpu_bind(const Values& values) {
  Meaning meaning;
  for (const auto word : split_words(values[0], ',')) {
    if (word == "verbose" || word == "v") {
      meaning.words.push_back("--report-bindings");
      continue;
    }
    if (word == "quiet" || word == "q") continue;
    std::string_view bind;
    for (const auto& [theirs, ours] :
         {std::pair("none", "none"), std::pair("no", "none"), std::pair("cores", "core"),
          std::pair("rank", "core"), std::pair("sockets", "socket"), std::pair("ldoms", "numa")}) {
      if (word == theirs) bind = ours;
    }
    if (bind.empty()) {
      return not_here("'{}' is not possible: use --bind core, l3, numa, socket or gpu", word);
    }
    meaning.words.push_back("--bind=" + std::string(bind));
  }
  if (meaning.words.empty()) meaning.note = "it asks for nothing";
  return meaning;
}

Result<Meaning> mem_bind(const Values& values) {
  for (const auto word : split_words(values[0], ',')) {
    for (const char* other : {"rank", "map", "mask"}) {
      if (word.starts_with(other)) {
        return not_here("memory is where the thread that uses it runs: use --bind numa");
      }
    }
  }
  return Meaning{.note = "memory is where the thread that uses it runs"};
}

Result<Meaning> distribution(const Values& values) {
  for (const char* known : {"block", "block:block", "*", "block:*"}) {
    if (values[0] == known) return Meaning{.note = "ranks fill the hosts in their order"};
  }
  return not_here("ranks fill the hosts in their order (block), neighbours together");
}

Result<Meaning> wait_time(const Values& values) {
  if (values[0] == "0") return Meaning{.note = "workers may go on after the first one has ended"};
  return not_here(
      "workers may go on after the first one has ended well; --timeout bounds the whole job");
}

Result<Meaning> gpus_per_task(const Values& values) {
  if (values[0] == "1" || values[0].ends_with(":1")) return Meaning{.words = {"--isolate-gpus"}};
  return not_here(
      "a worker sees one GPU with --isolate-gpus, or all; set CUDA_VISIBLE_DEVICES in "
      "the program for others");
}

constexpr std::string_view kAsk =
    "dlaunch asks Slurm for nothing; give it to salloc or sbatch, and start dlaunch within";
constexpr std::string_view kBroadcast =
    "dlaunch copies no programs to other hosts; put yours on a file system that all of them share";
constexpr std::string_view kScripts =
    "dlaunch runs one program; start a script that calls both: dlaunch … sh -c 'PROLOG && program'";
constexpr std::string_view kFiles = "use --log-dir, which has a file for each rank and stream";
constexpr std::string_view kThreads = "use -n for workers or --omp-threads for threads of each";

constexpr ForeignOption kSrun[] = {
    {"time", 1, Fate::ours, "--timeout", time_limit},
    {"nodes", 1, Fate::ours, "--nnodes=MIN:MAX", nodes},
    {"export", 1, Fate::ours, "each NAME=VALUE is --env; workers inherit the rest", exported},
    {"signal", 1, Fate::ours, "--end-signal", end_signal},
    {"cpu-bind", 1, Fate::ours,
     "cores, sockets and ldoms are --bind=core, socket and numa; verbose is --report-bindings",
     cpu_bind},
    {"gpus-per-task", 1, Fate::ours, "1 is --isolate-gpus", gpus_per_task},
    {"ntasks-per-socket", 1, Fate::ours, "--nproc={}:socket"},
    {"ntasks-per-core", 1, Fate::ours, "--nproc={}:core"},
    {"ntasks-per-gpu", 1, Fate::ours, "--nproc={}:gpu"},
    {"nodelist w", 1, Fate::ours, "--hosts={}"},
    {"T threads", 1, Fate::ours, "--ssh-logins={}"},
    {"Q", 0, Fate::ours, "--quiet"},
    {"usage", 0, Fate::ours, "--help"},
    {"mem-bind", 1, Fate::nothing, "memory is where the thread that uses it runs", mem_bind},
    {"distribution", 1, Fate::nothing, "ranks fill the hosts in their order", distribution},
    {"wait W", 1, Fate::nothing, "0 is so in any case; other times are refused", wait_time},
    {"kill-on-bad-exit K", kAfterEquals, Fate::nothing, "a failure ends the job in any case"},
    {"unbuffered u", 0, Fate::nothing, "dlaunch shows what is written at once"},
    {"overcommit O", 0, Fate::nothing, "more workers than CPUs are no error"},
    {"overlap exact resv-ports quit-on-interrupt disable-status X preserve-env E", kAfterEquals,
     Fate::nothing, "it changes how Slurm starts a step, and dlaunch starts the workers"},
    {"propagate", kAfterEquals, Fate::nothing, "workers inherit the limits of this shell"},
    {"use-min-nodes spread-job", 0, Fate::nothing, "the hosts are chosen before dlaunch starts"},
    {"comment job-name J mcs-label wckey mail-type mail-user slurmd-debug treewidth", 1,
     Fate::nothing, "it is for Slurm's own records"},
    {"hint", 1, Fate::nothing, "dlaunch deals out whole cores with --bind"},
    {"account A partition qos licenses L clusters M reservation constraint C prefer "
     "cluster-constraint dependency begin b deadline delay-boot priority power switches mincpus "
     "mem mem-per-cpu mem-per-gpu tmp gres gres-flags bb bbf core-spec S thread-spec "
     "sockets-per-node cores-per-socket threads-per-core extra-node-info B cpus-per-gpu G "
     "gpu-bind gpu-freq gpus-per-socket cpu-freq network acctg-freq time-min "
     "tres-bind tres-per-task segment",
     1, Fate::refused, kAsk},
    {"hold contiguous reboot no-allocate Z", 0, Fate::refused, kAsk},
    {"exclusive nice immediate I", kAfterEquals, Fate::refused, kAsk},
    {"gpus-per-node", 1, Fate::refused, "use --nproc gpu, or --isolate-gpus for a GPU each"},
    {"cpus-per-task", 1, Fate::refused, kThreads},
    {"jobid", 1, Fate::refused, "start dlaunch within that job: srun --jobid=ID --pty dlaunch …"},
    {"relative", 1, Fate::refused, "use --hosts to choose hosts of the allocation"},
    {"het-group", 1, Fate::refused, "a job of dlaunch is one group; use --hosts to choose hosts"},
    {"no-kill k", kAfterEquals, Fate::refused,
     "--nnodes MIN:MAX goes on with fewer hosts when one is lost"},
    {"bcast send-libs compress", kAfterEquals, Fate::refused, kBroadcast},
    {"bcast-exclude", 1, Fate::refused, kBroadcast},
    {"container container-id", 1, Fate::refused,
     "start the container's own command as the program: dlaunch … apptainer exec IMAGE program"},
    {"error o open-mode", 1, Fate::refused, kFiles},
    {"e", 1, Fate::refused,
     "for srun's use --log-dir, which has a file for each rank and stream; for deepspeed's "
     "--exclude"},
    {"prolog epilog task-prolog task-epilog", 1, Fate::refused, kScripts},
    {"accel-bind", 1, Fate::refused, kAsk},
    {"pty x11", kAfterEquals, Fate::refused,
     "--output raw gives the workers this terminal as it is"},
};

}  // namespace

std::span<const ForeignOption> srun_options() { return kSrun; }

}  // namespace dlaunch

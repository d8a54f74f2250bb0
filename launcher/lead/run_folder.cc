#include "launcher/lead/run_folder.h"

#include <fcntl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "launcher/lead/events/event_log.h"
#include "launcher/lead/metrics/machine_rates.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

using nlohmann::json;

// Another leader of the same job continues a file.
Result<FileWriter::FilePtr> open_file(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666));
  if (!fd) return errno_error("write " + path, errno);
  return std::make_shared<FileWriter::File>(std::move(fd), path);
}

std::string kernel() {
  utsname name{};
  return ::uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "";
}

// Without the values of the user's variables, which may be secrets.
json environment_of(const Plan& plan) {
  json list = json::array();
  const auto add = [&](const std::string& name, const std::string& value) {
    list.push_back(json::array({name, value}));
  };
  add("dlaunch", DLAUNCH_VERSION);
  add("kernel", kernel());
  for (const auto& [name, value] : facts_of(plan)) {
    add(name, name == "env" ? value.substr(0, value.find('=')) : value);
  }
  return list;
}

}  // namespace

Result<std::unique_ptr<RunFolder>> RunFolder::open(asio::io_context& loop, const Plan& plan) {
  std::unique_ptr<RunFolder> folder(new RunFolder(loop, plan));
  std::error_code error;
  std::filesystem::create_directories(plan.run_dir, error);
  if (error) return errno_error("make the folder " + plan.run_dir, error.value());
  auto job = open_file(plan.run_dir + "/job.json", O_TRUNC);
  if (!job) return job.error();
  auto waiting = folder->open_lines("waiting.jsonl");
  if (!waiting) return waiting.error();
  auto bandwidth = folder->open_lines("bandwidth.jsonl");
  if (!bandwidth) return bandwidth.error();
  auto limits = open_file(plan.run_dir + "/limits.json", O_TRUNC);
  if (!limits) return limits.error();
  folder->job_ = std::move(*job);
  folder->limits_ = std::move(*limits);
  folder->waiting_ = std::move(*waiting);
  folder->bandwidth_ = std::move(*bandwidth);
  return folder;
}

Result<RunFolder::Lines> RunFolder::open_lines(const char* name) const {
  auto file = open_file(plan_.run_dir + "/" + name, O_APPEND);
  if (!file) return file.error();
  return Lines{*file, room_in((*file)->fd.get(), kMostOfRunFile)};
}

RunFolder::RunFolder(asio::io_context& loop, const Plan& plan)
    : plan_(plan),
      writer_(loop, {.drained =
                         [this] {
                           if (on_written_) on_written_();
                         },
                     .failed = [](const Error& error) { log_warn("{}", error.what); }}),
      waits_(steady_now()),
      timer_(loop, [this] { sample(); }) {}

void RunFolder::begin(const std::vector<std::string>& hosts, Sources sources) {
  sources_ = std::move(sources);
  hosts_ = static_cast<int>(hosts.size());
  const json job = {{"id", plan_.job_id},
                    {"program", plan_.argv.at(0)},
                    {"host", plan_.host},
                    {"hosts", hosts},
                    {"started", rfc3339(time_now().wall)},
                    {"environment", environment_of(plan_)}};
  writer_.write(job_, json_text(job, 2) + "\n");
  timer_.arm(waits_.due());
}

// The workers have ended: what is measured now is the machine's, and costs the job nothing.
void RunFolder::end(std::function<void()> on_written) {
  on_written_ = std::move(on_written);
  if (sources_.goodput) sample_waits();
  timer_.arm(kNever);
  if (ranks_ < 2) return;
  MachineRates rates{.hosts = hosts_};
  if (hosts_ > 1) {
    const Line line = line_of(plan_.master_addr, "/sys");
    rates.interface = line.interface;
    rates.line = line.bytes_per_s;
  } else {
    rates.copiers = copiers_for(ranks_, std::thread::hardware_concurrency());
    rates.copies = measure_copies(rates.copiers);
  }
  writer_.write(limits_, render_json(rates));
}

void RunFolder::sample() {
  sample_waits();
  sources_.tallies([this](int ranks, const BandwidthSamples::Tallies& tallies) {
    const std::string line = bandwidths_.sample(steady_now(), ranks, tallies);
    if (!line.empty()) ranks_ = std::max(ranks_, ranks);
    write(bandwidth_, line);
  });
  timer_.arm(waits_.due());
}

void RunFolder::sample_waits() { write(waiting_, waits_.sample(steady_now(), sources_.goodput())); }

// A sample that finds no room is left out: the next one covers its time.
void RunFolder::write(Lines& to, const std::string& line) {
  if (line.empty() || line.size() > to.room || writer_.full()) return;
  to.room -= line.size();
  writer_.write(to.file, line);
}

}  // namespace dlaunch

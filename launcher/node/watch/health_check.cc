#include "launcher/node/watch/health_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace dlaunch {
namespace {

constexpr Duration kOwnTest = std::chrono::seconds(30);  // takes one
constexpr Duration kOwnTestOfGpus = std::chrono::seconds(50);
constexpr Duration kUsersTest = std::chrono::seconds(60);
constexpr std::size_t kMaxReason = 300;  // bytes

// The part of our environment that the test's own dlaunch may see: nothing about the job it is in.
constexpr std::array<std::string_view, 7> kForTheTest = {
    "PATH",         "HOME",         "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
    "ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"};

}  // namespace

std::string why_unhealthy(const std::string& name, const Command::End& end, Duration limit) {
  const std::string how = describe(end, limit);
  if (how.empty()) return "";
  const auto lines = split_words(end.text, '\n');
  if (end.too_late || lines.empty()) return name + " " + how;
  return name + ": " + escaped(lines.back().substr(0, kMaxReason));
}

HealthCheck::HealthCheck(asio::io_context& loop, const Plan& plan, std::string folder,
                         std::set<pid_t>& helpers, Done done)
    : plan_(plan), folder_(std::move(folder)), done_(std::move(done)), command_(loop, helpers) {}

void HealthCheck::start() {
  run("dlaunch's test", own_test(), [this] {
    if (plan_.health_check.empty()) return done_("");
    auto asks = shell_command(plan_.health_check, kUsersTest);
    asks.keep_errors = true;
    run("--health-check", asks, [this] { done_(""); });
  });
}

void HealthCheck::run(const std::string& name, const Command::Request& request,
                      const std::function<void()>& next) {
  const Duration limit = request.limit;
  auto started = command_.run(request, [this, name, limit, next](const Command::End& end) {
    const auto why = why_unhealthy(name, end, limit);
    why.empty() ? next() : done_(why);
  });
  if (!started) done_(name + ": " + started.error().what);
}

Command::Request HealthCheck::own_test() const {
  Command::Request asks{.argv = {"/proc/self/exe", kHostTestWord, std::to_string(plan_.nproc),
                                 std::to_string(plan_.gpus_asked)},
                        .env = {"TMPDIR=" + folder_},
                        .keep_errors = true,
                        .limit = plan_.gpus_asked > 0 ? kOwnTestOfGpus : kOwnTest};
  for (const std::string& item : own_environment()) {
    const auto name = std::string_view(item).substr(0, item.find('='));
    if (std::ranges::find(kForTheTest, name) != kForTheTest.end()) asks.env.push_back(item);
  }
  return asks;
}

}  // namespace dlaunch

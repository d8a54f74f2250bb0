#include "tests/sim/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dlaunch::sim {
namespace {

struct EventWords {
  using Core = JobCore;
  std::string operator()(const Core::Start&) const { return "start"; }
  std::string operator()(const Core::Resume& e) const {
    return fmt::format("resume after round {} with {} processes", e.was.round, e.found.size());
  }
  std::string operator()(const Core::Spawned& e) const { return fmt::format("{} spawned", e.slot); }
  std::string operator()(const Core::SpawnFailed& e) const {
    return fmt::format("{} not spawned", e.slot);
  }
  std::string operator()(const Core::Ended& e) const {
    return fmt::format("{} ended{}{}", e.slot, e.well ? " well" : "",
                       e.consequence ? " as a consequence" : "");
  }
  std::string operator()(const Core::Stuck& e) const {
    return fmt::format("{} does not end", e.slot);
  }
  std::string operator()(const Core::Ready& e) const {
    return fmt::format("{} is ready, left round {}, holds version {}", e.slot, e.left, e.version);
  }
  std::string operator()(const Core::Progress& e) const {
    return fmt::format("{} has come to version {}", e.slot, e.version);
  }
  std::string operator()(const Core::Signal& e) const { return fmt::format("signal {}", e.number); }
  std::string operator()(const Core::Resize& e) const {
    return fmt::format("resize to {}", e.size);
  }
  std::string operator()(const Core::Replace& e) const { return fmt::format("replace {}", e.slot); }
  std::string operator()(const Core::NodeLost& e) const {
    return fmt::format("node {} is lost", e.node);
  }
  std::string operator()(const Core::NodeBack& e) const {
    return fmt::format("node {} is back", e.node);
  }
  std::string operator()(const Core::NodeDrain& e) const {
    return fmt::format("node {} is to go", e.node);
  }
  std::string operator()(const Core::Clock&) const { return "clock"; }
};

struct ActionWords {
  using Core = JobCore;
  std::string operator()(const Core::StartWorkers& a) const {
    std::string text = fmt::format("start for round {}:", a.round);
    for (const auto& place : a.places) text += fmt::format(" {} (rank {})", place.slot, place.rank);
    return text;
  }
  std::string operator()(const Core::StopWorkers& a) const {
    return fmt::format("stop {} by signal {}", fmt::join(a.slots, ", "), a.signal);
  }
  std::string operator()(const Core::HandOn& a) const { return fmt::format("pass {}", a.signal); }
  std::string operator()(const Core::Fence& a) const {
    return fmt::format("fence: round {} comes, rank {} was lost", a.round, a.lost);
  }
  std::string operator()(const Core::Announce& a) const {
    return fmt::format("round {} is {}", a.round, fmt::join(a.slots, ", "));
  }
  std::string operator()(const Core::AwaitEnd& a) const {
    return fmt::format("wait for the end of {}", a.of.slot);
  }
  std::string operator()(const Core::Finish& a) const {
    return fmt::format("finish: {}{}", words(a.end), a.all_reaped ? "" : ", some left");
  }
};

}  // namespace

std::string words(const JobCore::Event& event) { return std::visit(EventWords{}, event); }

std::string words(const JobCore::Action& action) { return std::visit(ActionWords{}, action); }

std::string words(JobEnding end) {
  constexpr const char* kWords[] = {"succeeded",      "worker failed", "given up",
                                    "spawn failed",   "interrupted",   "timed out",
                                    "could not begin"};
  return kWords[static_cast<int>(end)];
}

}  // namespace dlaunch::sim

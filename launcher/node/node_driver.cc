#include "launcher/node/node_driver.h"

namespace dlaunch {

NodeDriver::NodeDriver(int slots, Duration grace, Pump& pump, Effects& effects)
    : core_(slots, grace), pump_(pump), effects_(effects) {}

void NodeDriver::step(const AgentCore::Event& event) {
  for (const auto& action : core_.step(effects_.now(), event)) {
    effects_.looks_on(action);
    std::visit([this](const auto& what) { perform(what); }, action);
  }
}

void NodeDriver::post(const AgentCore::Event& event) {
  pump_.post([this, event] { step(event); });
}

// -- The job's wishes

void NodeDriver::start(int round, const std::vector<JobCore::Place>& places) {
  AgentCore::Start start;
  for (const auto& place : places) {
    ranks_[place.slot] = place.rank;
    start.slots.push_back(place.slot);
  }
  round_ = round;
  step(start);
}

void NodeDriver::stop(const std::vector<Slot>& slots, int signal) {
  step(AgentCore::Stop{slots, signal});
}

void NodeDriver::hand_on(int signal) { step(AgentCore::HandOn{signal}); }

// -- What happens here

void NodeDriver::perform(const AgentCore::Spawn& spawn) {
  const SpawnError error = effects_.spawn(spawn.slot, ranks_.at(spawn.slot), round_);
  if (error.stage != Stage::none) return never_ran(spawn.slot, error);
  post(AgentCore::Spawned{});
  effects_.say(NodeSpawned{spawn.slot});
}

void NodeDriver::perform(const AgentCore::NotStarted& what) {
  effects_.say(NodeNotStarted{what.slot});
}

void NodeDriver::perform(const AgentCore::TellStuck& what) {
  effects_.say(effects_.look_at_stuck(what.slot));
}

void NodeDriver::never_ran(Slot slot, const SpawnError& error) {
  step(AgentCore::SpawnFailed{slot});  // before the news: they may bring the slot's next start
  effects_.say(NodeStartFailed{slot, error});
  post(AgentCore::Clock{});  // after the news, which most often end the job: the next one starts
}

void NodeDriver::exited(Slot slot) { post(AgentCore::Exited{slot}); }

void NodeDriver::on_clock() { post(AgentCore::Clock{}); }

}  // namespace dlaunch

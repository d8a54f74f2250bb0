#include "elastic/node_driver.h"

namespace dlaunch {

NodeDriver::NodeDriver(int slots, Duration grace, Pump& pump, Hands& hands)
    : core_(slots, grace), pump_(pump), hands_(hands) {}

void NodeDriver::step(const AgentCore::Event& event) {
  for (const auto& action : core_.step(hands_.now(), event)) {
    hands_.looks_on(action);
    std::visit([this](const auto& what) { perform(what); }, action);
  }
}

void NodeDriver::post(const AgentCore::Event& event) {
  pump_.post([this, event] { step(event); });
}

// -- What the job wants

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
  if (!hands_.spawn(spawn.slot, ranks_.at(spawn.slot), round_)) return never_ran(spawn.slot);
  post(AgentCore::Spawned{});
  hands_.tell(JobCore::Spawned{spawn.slot});
}

void NodeDriver::perform(const AgentCore::NotStarted& what) {
  hands_.tell(JobCore::Ended{what.slot, true});
}

void NodeDriver::perform(const AgentCore::GiveUp& what) {
  hands_.tell(JobCore::Unkillable{what.slot});
}

void NodeDriver::never_ran(Slot slot) {
  hands_.tell(JobCore::SpawnFailed{slot});  // first, or the next would be started in vain
  post(AgentCore::SpawnFailed{slot});
}

void NodeDriver::exited(Slot slot) { post(AgentCore::Exited{slot}); }

void NodeDriver::on_clock() { post(AgentCore::Clock{}); }

}  // namespace dlaunch

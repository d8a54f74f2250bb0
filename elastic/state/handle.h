// What the handles of the C API are. For tests, which bring Rounds of their own.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "elastic/state/sampler.h"
#include "elastic/state/state.h"

struct dl_state {
  dl_state(std::unique_ptr<dlaunch::Rounds> rounds, const dlaunch::StateConfig& config)
      : core(std::move(rounds), config) {}
  dlaunch::State core;
  std::string error;
  const pid_t process = ::getpid();
};

struct dl_sampler {
  dl_state* state;
  dlaunch::Sampler core;
  dlaunch::Sampler::Position
      committed;  // the registered memory: batches may be taken before an update
};

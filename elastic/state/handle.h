// The handles of the C API. For tests, which bring their own Rounds.
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
  // An object that the state refers to and keeps alive.
  struct Kept {
    dlaunch::Sampler core;
    // The sampler's position in the registered memory: batches may be taken before an update.
    dlaunch::Sampler::Position committed{};
    std::string name;
  };
  dl_state* state;
  std::shared_ptr<Kept> kept;
};

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
  // What the state refers to, which has a share in it.
  struct Kept {
    dlaunch::Sampler core;
    // The registered memory: batches may be taken before an update.
    dlaunch::Sampler::Position committed{};
  };
  dl_state* state;
  std::shared_ptr<Kept> kept;
};

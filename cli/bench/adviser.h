// dlaunch-bench --model: predicts the step time of a data-parallel training, and advises.
#pragma once

#include <optional>
#include <vector>

#include <dlaunch/ring.h>

#include "cli/bench/advice.h"
#include "cli/bench/options.h"

namespace CLI {
class App;
}

namespace bench {

struct Wanted {
  Training training;
  std::optional<dlaunch::HostLine> line;  // none: measure it
  std::vector<int> workers;
  std::vector<Form> forms;
  std::vector<double> buckets;
  double target = 0.5;
};

void declare_model(CLI::App& app, ModelOptions& options);
// Refuses options of the model without --model. Throws a Failure.
void check_without_model(const CLI::App& app);
// The options of --model, checked. Throws a Failure.
Wanted wanted_of(const CLI::App& app, const Options& options);

// What the ranks of a job measured of the line between their hosts.
struct Surveyed {
  dlaunch::HostLine line;
  int hosts = 0, per_host = 0;
};
// Collective, of ranks on at least two hosts; throws a Failure.
Surveyed survey(dl_comm* comm);

Forecast forecast_of(const Wanted& wanted, const std::optional<Surveyed>& surveyed);

}  // namespace bench

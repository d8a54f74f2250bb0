// What the predictions of step_model.h mean, in sentences, as a table, CSV and JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/step_model.h"

namespace bench {

struct Forecast {
  Training training;
  dlaunch::HostLine line;
  int measured_hosts = 0;  // 0: the user has given the line
  double target = 0.5;     // the least share of the first worker's samples/s that one more must add
  std::vector<Prediction> rows;  // by growing numbers of workers, more than one
};

// The most workers of the forecast that pay: each of them adds the target.
int most_that_pay(const Forecast& forecast);
// Where synchronous training keeps less than this busy, local training is an alternative.
inline constexpr double kBusyEnough = 0.8;

std::vector<std::string> advice(const Forecast& forecast);
std::string advice_table(const Forecast& forecast);
std::string advice_csv(const Forecast& forecast);
std::string advice_json(const Forecast& forecast);

}  // namespace bench

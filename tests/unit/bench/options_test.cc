// dlaunch-bench refuses meaningless command lines, each with one line that says why.
#include "cli/bench/options.h"

#include <CLI/CLI.hpp>
#include <doctest/doctest.h>

#include "base/exit_code.h"

namespace bench {
namespace {

Options all_reduce() {
  Options options;
  options.collective = "all_reduce";
  return options;
}

Cases cases_of(Options options) {
  CLI::App app;
  declare(app, options);
  return make_cases(app, options);
}

std::string refusal(const Options& options) {
  try {
    cases_of(options);
  } catch (const Failure& failure) {
    CHECK(failure.exit_code == dlaunch::kExitUsage);
    return failure.what;
  }
  return "accepted";
}

TEST_CASE("a skew is a duration above zero") {
  Options options = all_reduce();
  options.skew = "1.5ms";
  CHECK(cases_of(options).skew_us == doctest::Approx(1500));
  options.skew = "0";
  CHECK(refusal(options).find("--skew") == 0);
  options.skew = "soon";
  CHECK(refusal(options).find("--skew") == 0);
}

TEST_CASE("--overlap is for all_reduce, and not for late ranks") {
  Options options = all_reduce();
  options.overlap = true;
  CHECK(cases_of(options).kind->kind == Kind::all_reduce);
  options.skew = "1ms";
  CHECK(refusal(options) == "--overlap and --skew cannot be combined");
  options.skew = "";
  options.collective = "broadcast";
  CHECK(refusal(options) == "--overlap is measured with all_reduce only");
}

TEST_CASE("a collective without a model has no share of a limit") {
  Options options = all_reduce();
  options.calibrate = true;
  CHECK(cases_of(options).kind->kind == Kind::all_reduce);
  options.collective = "gather";
  CHECK(refusal(options).find("--calibrate: no limit is known for gather") == 0);
}

TEST_CASE("options without effect are refused") {
  Options options;
  options.collective = "barrier";
  options.rotate = 2;
  CHECK(refusal(options) == "--rotate: a barrier has no buffers");
  options = all_reduce();
  options.cpu = true;
  CHECK(refusal(options) == "accepted");
  options.json = "-";
  CHECK(refusal(options).find("--cpu adds a column to the table") == 0);
}

TEST_CASE("a comparison with NCCL needs a GPU and a collective that NCCL has") {
  Options options = all_reduce();
  options.compare = true;
  CHECK(refusal(options).find("--device cuda") != std::string::npos);
  options.device = "cuda";
  CHECK(refusal(options) == "accepted");
  options.collective = "gather";
  CHECK(refusal(options).find("NCCL has no function for gather") != std::string::npos);
}

}  // namespace
}  // namespace bench

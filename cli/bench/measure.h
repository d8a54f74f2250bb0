// One rank's part in timing the cases. Everything here is collective.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <dlaunch/ring.h>

#include "cli/bench/bench_case.h"
#include "cli/bench/bench_output.h"
#include "cli/bench/nccl_direct.h"
#include "cli/bench/options.h"

namespace bench {

// Throws a Failure with the communicator's error.
void require(dl_result result, dl_comm* comm);

class Bench {
 public:
  Bench(dl_comm* comm, const Options& options, const Cases& cases);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  // For --compare; call it before the first measurement.
  void prepare_compare();
  // With --compare: NCCL's version, or why NCCL is not measured by itself.
  const std::string& nccl() const { return nccl_text_; }
  // The result is the same on all ranks. Calls before_part(), if any, kParts times, in turns with
  // as many parts of the measurement.
  Timing measure(const Case& c, bool in_place, const std::function<void()>& before_part = {});
  static constexpr int kParts = 3;

 private:
  // The implementation: libdlring, NCCL by itself, or libdlring through the host's memory.
  enum class Way { ours, nccl, host };
  void run(Way way, Buffers& buffers, const Case& c, bool in_place);
  void start(Way way, Buffers& buffers, const Case& c, bool in_place);
  void await(Way way);
  std::size_t checked_run(Way way, const Case& c, bool in_place);
  double timed_run(Way way, const Case& c, bool in_place);
  void compare(const Case& c, bool in_place, std::size_t count, Timing& timing);
  std::vector<double> of_slowest(std::vector<double> times);
  Overlap overlap(const Case& c, bool in_place, std::size_t count, double alone_us);
  int iterations(const Case& c, bool in_place);
  Buffers& next_buffers();
  bool in_stream() const { return options_.queue > 1 && options_.device == "cuda"; }

  dl_comm* comm_;
  const Options& options_;
  double skew_us_;
  std::unique_ptr<NcclDirect> nccl_;  // null: not measured
  std::string nccl_text_;
  dl_comm* host_ = nullptr;       // all ranks, without NCCL; null: not measured
  std::vector<Buffers> buffers_;  // if several, they take turns
  std::size_t turn_ = 0;
};

}  // namespace bench

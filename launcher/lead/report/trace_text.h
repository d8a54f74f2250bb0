// The timeline of a job, in Chrome's trace event format, which Perfetto reads, too. Pure.
//
// Each rank is a process there, with a thread for its operations; between them are slices
// "compute". Arrows lead from the entry of a rank that others waited for to the end of each wait.
// The job is a process of its own, with its rounds, failures and commits. All times are on the
// leader's clock; the metadata say how well the clock of each host is known there, and how many old
// operations of a rank were dropped.
//
// While the links of a rank are slow, each operation ends with a wait for that rank with the cause
// link. The length is the ledger's estimate, the share of the step that the links cost; where it
// lies in the operation is not known. Such a wait has "estimate" in its arguments.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/flight_spans.h"

namespace dlaunch {

struct Trace {
  struct Operation {
    int round = 0;
    Span span;
  };
  struct Rank {
    int node = 0;
    std::string host;
    Duration clock_error{};
    std::deque<Operation> operations;  // in the order of their ends
    std::uint64_t dropped = 0;
    std::map<int, std::vector<std::string>> texts;  // of the rounds of `operations`
  };
  struct Mark {  // an event of the job
    TimePoint at{};
    std::string what;
    int rank = -1;  // -1: of the whole job
  };
  struct Round {
    int number = 0, size = 0;
    TimePoint from{};
  };
  struct SlowLinks {  // from then on; what they cost of each step, by the rank whose links are slow
    TimePoint from{};
    std::map<int, double> shares;
  };
  std::string job_id;
  TimePoint begun{}, ended{};
  std::map<int, Rank> ranks;
  std::vector<Mark> marks;
  std::vector<Round> rounds;
  std::deque<SlowLinks> slow_links;
};

// The whole JSON text, piece by piece.
void write_trace(const Trace& trace, const std::function<void(std::string_view)>& write);

}  // namespace dlaunch

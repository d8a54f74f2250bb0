// SpanReader: reads what is new in the span files of this host's ranks (base/flight_spans.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "elastic/goodput_ledger.h"
#include "launcher/node/workers/worker_env.h"

namespace dlaunch {

class SpanReader {
 public:
  // joined: the epoch if the rank has no span file, because its program does not use libdlring, or
  // not yet.
  RankSpans look(TimePoint now, const WorkerPlace& place);
  // All operations, if the job is traced.
  RankSpans look_at_trace(TimePoint now, const WorkerPlace& place);

 private:
  struct Read {
    std::string path;
    std::uint64_t last = 0;  // the number of the last span
    std::size_t texts = 0;
  };
  using Reads = std::map<int, Read>;  // by rank
  static RankSpans look(TimePoint now, const WorkerPlace& place, std::string path, Reads& reads);

  Reads spans_, traces_;
};

}  // namespace dlaunch

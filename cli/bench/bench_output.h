// How dlaunch-bench prints: nccl-tests' table, CSV, or JSON. Rank 0 only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/bench_case.h"

namespace bench {

struct Timing {
  double median_us = 0;
  double p99_us = 0;
  std::size_t wrong = 0;
};

struct Row {
  Case c;
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;
};

enum class Format { table, csv, json };

struct Header {
  std::string transport;
  int ranks = 1;
  std::vector<std::string> places;  // "pid 4711 on host", by rank
};

class Printer {
 public:
  Printer(Format format, const KindInfo& kind, Header header, bool checked);
  void row(const Row& row);
  void finish();
  bool any_wrong() const { return wrong_ > 0; }

 private:
  void table_side(const Row& row, const std::optional<Timing>& timing);
  void csv_side(const Row& row, const char* place, const std::optional<Timing>& timing);
  double algbw(const Row& row, const Timing& timing) const;

  Format format_;
  const KindInfo& kind_;
  Header header_;
  bool checked_;
  std::vector<Row> rows_;
  std::size_t wrong_ = 0;
  double busbw_sum_ = 0;
  int busbw_count_ = 0;
};

}  // namespace bench

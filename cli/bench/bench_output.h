// dlaunch-bench's output: nccl-tests' table, CSV, JSON, each to a place of its own. Rank 0 only.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/bench_case.h"
#include "cli/bench/bounds.h"
#include "cli/bench/machine_limits.h"

namespace bench {

// An all_reduce in the background of equally long computing, and in buckets, while its parts are
// computed.
struct Overlap {
  double compute_us = 0, both_us = 0, hidden_pct = 0;
  std::optional<double> bucketed_us, bucketed_pct;
};

struct Timing {
  double median_us = 0;
  double p99_us = 0;
  std::size_t wrong = 0;
  double cpu_s_per_gb = 0;  // of all ranks, for Case::bytes
  std::optional<Overlap> overlap;
  std::optional<double> nccl_us, host_us;  // the medians of others, with --compare
  std::optional<Bounds> least;             // from limits measured in turns with it; --calibrate
};

struct Row {
  Case c;
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;
};

struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// The file of each form; null: not wanted.
struct Outputs {
  File table, csv, json;
};

struct Header {
  std::string transport;
  int ranks = 1;
  std::vector<std::string> places;  // "pid 4711 on host", by rank
  bool checked = true;
  std::optional<Limits> limits;  // if set, there are columns for the share of them
  int rotate = 1;
  double skew_us = 0;
  bool overlap = false, cpu = false, compare = false;
  std::string nccl;  // with compare: its version, or why it is not measured
};

// One row's figures of one place, in or out, for the columns.
struct Figures {
  const Header& header;
  const Case& c;
  const Timing& timing;
};

// A column, with a figure of NaN if it has none. The table shows the head and unit, CSV and JSON
// the name.
struct Column {
  const char* head;
  const char* unit;
  const char* name;
  int width;
  double (*of)(const Figures&);
};

class Printer {
 public:
  Printer(Outputs outputs, const KindInfo& kind, Header header);
  void row(const Row& row);
  // Prints the last lines. False if something could not be written (a full disk); errno says why.
  bool finish();

 private:
  void table_head();
  void table_row(const Row& row);
  std::string table_side(const Row& row, bool in_place) const;
  void csv_side(const Row& row, bool in_place);
  void print_json();

  Outputs outputs_;
  const KindInfo& kind_;
  Header header_;
  // Optional columns.
  std::vector<Column> in_table_, in_files_;
  std::vector<Row> rows_;
  std::size_t wrong_ = 0;
  double busbw_sum_ = 0;
  int busbw_count_ = 0;
};

}  // namespace bench

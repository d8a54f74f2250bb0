#include "cli/bench/bench_output.h"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace bench {
namespace {

const char* dtype_of(const Case& c) {
  return kDtypeNames[static_cast<std::size_t>(c.dtype)].c_str();
}
std::string op_of(const KindInfo& kind, const Case& c) {
  return kind.reduces ? kOpNames[static_cast<std::size_t>(c.op)] : "none";
}

// A table is watched while it grows.
void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void print_table_head(const Header& header, const KindInfo& kind) {
  std::string text = fmt::format("# dlaunch-bench {} on {} ranks, transport {}\n#\n", kind.name,
                                 header.ranks, header.transport);
  for (std::size_t r = 0; r < header.places.size(); ++r) {
    text += fmt::format("#  Rank {:2} {}\n", r, header.places[r]);
  }
  text += fmt::format("#\n#{:>51}{:^42}  {:^42}\n", "", "out-of-place", "in-place");
  const std::string side =
      fmt::format("{:>9} {:>9} {:>7} {:>7} {:>6}", "time", "p99", "algbw", "busbw", "#wrong");
  text += fmt::format("#{:>13} {:>12} {:>9} {:>6} {:>6}  {}  {}\n", "size", "count", "type",
                      "redop", "root", side, side);
  const std::string units =
      fmt::format("{:>9} {:>9} {:>7} {:>7} {:>6}", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  text += fmt::format("#{:>13} {:>12} {:>9} {:>6} {:>6}  {}  {}\n", "(B)", "(elements)", "", "", "",
                      units, units);
  print(text);
}

}  // namespace

Printer::Printer(Format format, const KindInfo& kind, Header header, bool checked)
    : format_(format), kind_(kind), header_(std::move(header)), checked_(checked) {
  if (format_ == Format::table) print_table_head(header_, kind_);
  if (format_ == Format::csv) {
    print(
        "collective,ranks,bytes,count,dtype,op,place,median_us,p99_us,algbw_gbs,busbw_gbs,wrong\n");
  }
}

double Printer::algbw(const Row& row, const Timing& timing) const {
  return timing.median_us > 0 ? static_cast<double>(row.c.bytes) / timing.median_us / 1e3 : 0;
}

void Printer::table_side(const Row& row, const std::optional<Timing>& timing) {
  if (!timing) {
    return print(fmt::format("  {:>9} {:>9} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A", "N/A"));
  }
  const double bandwidth = algbw(row, *timing);
  print(fmt::format("  {:>9.2f} {:>9.2f} {:>7.2f} {:>7.2f} {:>6}", timing->median_us,
                    timing->p99_us, bandwidth, bandwidth * bus_factor(row.c.kind, header_.ranks),
                    checked_ ? std::to_string(timing->wrong) : "N/A"));
}

void Printer::csv_side(const Row& row, const char* place, const std::optional<Timing>& timing) {
  if (!timing) return;
  const double bandwidth = algbw(row, *timing);
  print(fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.4f},{:.4f},{}\n", kind_.name,
                    header_.ranks, row.c.bytes, row.c.count, dtype_of(row.c), op_of(kind_, row.c),
                    place, timing->median_us, timing->p99_us, bandwidth,
                    bandwidth * bus_factor(row.c.kind, header_.ranks), timing->wrong));
}

void Printer::row(const Row& row) {
  for (const auto& timing : {row.out_of_place, row.in_place}) {
    if (!timing) continue;
    wrong_ += timing->wrong;
    busbw_sum_ += algbw(row, *timing) * bus_factor(row.c.kind, header_.ranks);
    ++busbw_count_;
  }
  if (format_ == Format::json) return rows_.push_back(row);
  if (format_ == Format::csv) {
    csv_side(row, "out", row.out_of_place);
    csv_side(row, "in", row.in_place);
    return;
  }
  const std::string root = row.c.kind == Kind::broadcast ? std::to_string(row.c.root) : "-1";
  print(fmt::format(" {:>13} {:>12} {:>9} {:>6} {:>6}", row.c.bytes, row.c.count, dtype_of(row.c),
                    op_of(kind_, row.c), root));
  table_side(row, row.out_of_place);
  table_side(row, row.in_place);
  print("\n");
}

void Printer::finish() {
  if (format_ == Format::table) {
    print(fmt::format("# Out of bounds values : {} {}\n", wrong_, wrong_ == 0 ? "OK" : "FAILED"));
    print(fmt::format("# Avg bus bandwidth    : {:.4f}\n",
                      busbw_count_ > 0 ? busbw_sum_ / busbw_count_ : 0.0));
  }
  if (format_ != Format::json) return;
  nlohmann::json results = nlohmann::json::array();
  for (const auto& row : rows_) {
    const std::pair<const char*, const std::optional<Timing>&> sides[] = {{"out", row.out_of_place},
                                                                          {"in", row.in_place}};
    for (const auto& [place, timing] : sides) {
      if (!timing) continue;
      const double bandwidth = algbw(row, *timing);
      results.push_back({{"bytes", row.c.bytes},
                         {"count", row.c.count},
                         {"dtype", dtype_of(row.c)},
                         {"op", op_of(kind_, row.c)},
                         {"place", place},
                         {"median_us", timing->median_us},
                         {"p99_us", timing->p99_us},
                         {"algbw_gbs", bandwidth},
                         {"busbw_gbs", bandwidth * bus_factor(row.c.kind, header_.ranks)},
                         {"wrong", timing->wrong}});
    }
  }
  const nlohmann::json all = {{"collective", kind_.name},
                              {"ranks", header_.ranks},
                              {"transport", header_.transport},
                              {"results", results}};
  print(all.dump(2) + "\n");
}

}  // namespace bench

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
void print(const File& file, const std::string& text) {
  std::fputs(text.c_str(), file.get());
  std::fflush(file.get());
}

void print_table_head(const File& file, const Header& header, const KindInfo& kind) {
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
  print(file, text);
}

}  // namespace

Printer::Printer(Outputs outputs, const KindInfo& kind, Header header, bool checked)
    : outputs_(std::move(outputs)), kind_(kind), header_(std::move(header)), checked_(checked) {
  if (outputs_.table) print_table_head(outputs_.table, header_, kind_);
  if (outputs_.csv) {
    print(outputs_.csv,
          "collective,ranks,bytes,count,dtype,op,place,median_us,p99_us,algbw_gbs,busbw_gbs,"
          "wrong\n");
  }
}

double Printer::algbw(const Row& row, const Timing& timing) const {
  return timing.median_us > 0 ? static_cast<double>(row.c.bytes) / timing.median_us / 1e3 : 0;
}

std::string Printer::table_side(const Row& row, const std::optional<Timing>& timing) const {
  if (!timing) {
    return fmt::format("  {:>9} {:>9} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A", "N/A");
  }
  const double bandwidth = algbw(row, *timing);
  return fmt::format("  {:>9.2f} {:>9.2f} {:>7.2f} {:>7.2f} {:>6}", timing->median_us,
                     timing->p99_us, bandwidth, bandwidth * bus_factor(row.c.kind, header_.ranks),
                     checked_ ? std::to_string(timing->wrong) : "N/A");
}

void Printer::table_row(const Row& row) {
  const std::string root = kind_.rooted ? std::to_string(row.c.root) : "-1";
  print(outputs_.table,
        fmt::format(" {:>13} {:>12} {:>9} {:>6} {:>6}{}{}\n", row.c.bytes, row.c.count,
                    dtype_of(row.c), op_of(kind_, row.c), root, table_side(row, row.out_of_place),
                    table_side(row, row.in_place)));
}

void Printer::csv_side(const Row& row, const char* place, const std::optional<Timing>& timing) {
  if (!timing) return;
  const double bandwidth = algbw(row, *timing);
  print(outputs_.csv,
        fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.4f},{:.4f},{}\n", kind_.name,
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
  if (outputs_.json) rows_.push_back(row);
  if (outputs_.csv) {
    csv_side(row, "out", row.out_of_place);
    csv_side(row, "in", row.in_place);
  }
  if (outputs_.table) table_row(row);
}

bool Printer::finish() {
  if (outputs_.table) {
    print(outputs_.table,
          fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.4f}\n", wrong_,
                      wrong_ == 0 ? "OK" : "FAILED",
                      busbw_count_ > 0 ? busbw_sum_ / busbw_count_ : 0.0));
  }
  if (outputs_.json) print_json();
  for (const File* file : {&outputs_.table, &outputs_.csv, &outputs_.json}) {
    if (*file && std::ferror(file->get()) != 0) return false;
  }
  return true;
}

void Printer::print_json() {
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
  print(outputs_.json, all.dump(2) + "\n");
}

}  // namespace bench

#include "cli/bench/bench_output.h"

#include <cmath>
#include <cstdio>
#include <limits>

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

// Flushes: users watch a table while it grows.
void print(const File& file, const std::string& text) {
  std::fputs(text.c_str(), file.get());
  std::fflush(file.get());
}

double algbw(const Figures& f) {
  return f.timing.median_us > 0 ? static_cast<double>(f.c.bytes) / f.timing.median_us / 1e3 : 0;
}
double busbw(const Figures& f) { return algbw(f) * bus_factor(f.c.kind, f.header.ranks); }

double share_of(const Figures& f, double Bounds::*bound) {
  const auto& least = f.timing.least;
  return least && f.timing.median_us > 0 ? 100 * (*least).*bound / f.timing.median_us : 0;
}

constexpr Column kAlways[] = {
    {"time", "(us)", "median_us", 9, [](const Figures& f) { return f.timing.median_us; }},
    {"p99", "(us)", "p99_us", 9, [](const Figures& f) { return f.timing.p99_us; }},
    {"algbw", "(GB/s)", "algbw_gbs", 7, algbw},
    {"busbw", "(GB/s)", "busbw_gbs", 7, busbw},
};
constexpr Column kShares[] = {
    {"hw%", "", "hw_pct", 6, [](const Figures& f) { return share_of(f, &Bounds::absolute_us); }},
    {"api%", "", "api_pct", 6, [](const Figures& f) { return share_of(f, &Bounds::private_us); }},
};
constexpr Column kCpu = {"cpu_s/GB", "", "cpu_s_per_gb", 8,
                         [](const Figures& f) { return f.timing.cpu_s_per_gb; }};
double or_none(const std::optional<double>& figure) {
  return figure.value_or(std::numeric_limits<double>::quiet_NaN());
}
constexpr Column kOverlap[] = {
    {"compute", "(us)", "compute_us", 9,
     [](const Figures& f) { return f.timing.overlap->compute_us; }},
    {"both", "(us)", "both_us", 9, [](const Figures& f) { return f.timing.overlap->both_us; }},
    {"hidden%", "", "hidden_pct", 7, [](const Figures& f) { return f.timing.overlap->hidden_pct; }},
    {"buckets", "(us)", "bucketed_us", 9,
     [](const Figures& f) { return or_none(f.timing.overlap->bucketed_us); }},
    {"hidden%", "", "bucketed_pct", 7,
     [](const Figures& f) { return or_none(f.timing.overlap->bucketed_pct); }},
};
// The overhead of our call over NCCL's own.
double over(const Figures& f) {
  return f.timing.nccl_us ? f.timing.median_us - *f.timing.nccl_us
                          : std::numeric_limits<double>::quiet_NaN();
}
constexpr Column kCompare[] = {
    {"nccl", "(us)", "nccl_us", 9, [](const Figures& f) { return or_none(f.timing.nccl_us); }},
    {"over", "(us)", "over_nccl_us", 8, over},
    {"over", "(%)", "over_nccl_pct", 7,
     [](const Figures& f) { return 100 * over(f) / or_none(f.timing.nccl_us); }},
    {"host", "(us)", "host_us", 9, [](const Figures& f) { return or_none(f.timing.host_us); }},
};
constexpr int kWrongWidth = 6;

std::string text_of(double figure, int digits, const char* none) {
  return std::isfinite(figure) ? fmt::format("{:.{}f}", figure, digits) : none;
}

// One side of the table: a text for each column, and one for #wrong.
template <class Text>
std::string side(const std::vector<Column>& extra, Text text, const std::string& wrong) {
  std::string line = " ";
  for (const auto& column : kAlways) line += fmt::format(" {:>{}}", text(column), column.width);
  for (const auto& column : extra) line += fmt::format(" {:>{}}", text(column), column.width);
  return line + fmt::format(" {:>{}}", wrong, kWrongWidth);
}

}  // namespace

Printer::Printer(Outputs outputs, const KindInfo& kind, Header header)
    : outputs_(std::move(outputs)), kind_(kind), header_(std::move(header)) {
  if (header_.limits) in_table_.insert(in_table_.end(), std::begin(kShares), std::end(kShares));
  if (header_.overlap) in_table_.insert(in_table_.end(), std::begin(kOverlap), std::end(kOverlap));
  if (header_.compare) in_table_.insert(in_table_.end(), std::begin(kCompare), std::end(kCompare));
  in_files_ = in_table_;
  in_files_.insert(in_files_.begin(), kCpu);
  if (header_.cpu) in_table_.insert(in_table_.begin(), kCpu);
  if (outputs_.table) table_head();
  if (outputs_.csv) {
    std::string names =
        "collective,ranks,bytes,count,dtype,op,place,median_us,p99_us,algbw_gbs,busbw_gbs,wrong";
    for (const auto& column : in_files_) names += fmt::format(",{}", column.name);
    print(outputs_.csv, names + "\n");
  }
}

void Printer::table_head() {
  std::string text = fmt::format("# dlaunch-bench {} on {} ranks, transport {}\n#\n", kind_.name,
                                 header_.ranks, header_.transport);
  for (std::size_t r = 0; r < header_.places.size(); ++r) {
    text += fmt::format("#  Rank {:2} {}\n", r, header_.places[r]);
  }
  if (header_.rotate > 1) text += fmt::format("#  {} buffer pairs in turn\n", header_.rotate);
  if (header_.skew_us > 0) {
    text += fmt::format("#  Rank 0 arrives {:g} us late; times count from its arrival\n",
                        header_.skew_us);
  }
  if (header_.compare) text += fmt::format("#  NCCL by itself: {}\n", header_.nccl);
  if (header_.limits) text += "#\n" + limits_table(*header_.limits);
  const auto heads = side(
      in_table_, [](const Column& c) { return c.head; }, "#wrong");
  const auto units = side(
      in_table_, [](const Column& c) { return c.unit; }, "");
  const auto width = heads.size() - 2;
  text += fmt::format("#\n#{:>51}{:^{}}  {:^{}}\n", "", "out-of-place", width, "in-place", width);
  text += fmt::format("#{:>13} {:>12} {:>9} {:>6} {:>6}{}{}\n", "size", "count", "type", "redop",
                      "root", heads, heads);
  text += fmt::format("#{:>13} {:>12} {:>9} {:>6} {:>6}{}{}\n", "(B)", "(elements)", "", "", "",
                      units, units);
  print(outputs_.table, text);
}

std::string Printer::table_side(const Row& row, bool in_place) const {
  const auto& timing = in_place ? row.in_place : row.out_of_place;
  if (!timing)
    return side(
        in_table_, [](const Column&) { return "N/A"; }, "N/A");
  const Figures figures{header_, row.c, *timing};
  return side(
      in_table_, [&](const Column& c) { return text_of(c.of(figures), 2, "N/A"); },
      header_.checked ? std::to_string(timing->wrong) : "N/A");
}

void Printer::table_row(const Row& row) {
  const std::string root = kind_.rooted ? std::to_string(row.c.root) : "-1";
  print(outputs_.table, fmt::format(" {:>13} {:>12} {:>9} {:>6} {:>6}{}{}\n", row.c.bytes,
                                    row.c.count, dtype_of(row.c), op_of(kind_, row.c), root,
                                    table_side(row, false), table_side(row, true)));
}

void Printer::csv_side(const Row& row, bool in_place) {
  const auto& timing = in_place ? row.in_place : row.out_of_place;
  if (!timing) return;
  const Figures figures{header_, row.c, *timing};
  std::string line = fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.4f},{:.4f},{}", kind_.name,
                                 header_.ranks, row.c.bytes, row.c.count, dtype_of(row.c),
                                 op_of(kind_, row.c), in_place ? "in" : "out", timing->median_us,
                                 timing->p99_us, algbw(figures), busbw(figures), timing->wrong);
  for (const auto& column : in_files_) line += "," + text_of(column.of(figures), 4, "");
  print(outputs_.csv, line + "\n");
}

void Printer::row(const Row& row) {
  for (const bool in_place : {false, true}) {
    const auto& timing = in_place ? row.in_place : row.out_of_place;
    if (!timing) continue;
    wrong_ += timing->wrong;
    busbw_sum_ += busbw({header_, row.c, *timing});
    ++busbw_count_;
  }
  if (outputs_.json) rows_.push_back(row);
  if (outputs_.csv) {
    csv_side(row, false);
    csv_side(row, true);
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
    for (const bool in_place : {false, true}) {
      const auto& timing = in_place ? row.in_place : row.out_of_place;
      if (!timing) continue;
      nlohmann::json one = {{"bytes", row.c.bytes},
                            {"count", row.c.count},
                            {"dtype", dtype_of(row.c)},
                            {"op", op_of(kind_, row.c)},
                            {"place", in_place ? "in" : "out"},
                            {"wrong", timing->wrong}};
      const Figures figures{header_, row.c, *timing};
      for (const auto& column : kAlways) one[column.name] = column.of(figures);
      for (const auto& column : in_files_) one[column.name] = column.of(figures);
      results.push_back(one);
    }
  }
  nlohmann::json all = {{"collective", kind_.name},
                        {"ranks", header_.ranks},
                        {"transport", header_.transport},
                        {"results", results}};
  if (header_.compare) all["nccl"] = header_.nccl;
  if (header_.limits) all["machine"] = nlohmann::json::parse(limits_json(*header_.limits));
  print(outputs_.json, all.dump(2) + "\n");
}

}  // namespace bench

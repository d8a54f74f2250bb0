#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/rank_set.h"
#include "launcher/node/placement/topology.h"

namespace dlaunch {
namespace {

constexpr std::size_t kColumns = 100;

// Cells of the same width, "|" between L3 caches, folded under the title.
class Row {
 public:
  Row(std::string title, std::size_t cell_width)
      : indent_(title.size(), ' '), line_(std::move(title)), width_(cell_width) {}

  void add(const std::string& cell, bool new_cache) {
    const std::string_view gap = empty_ ? "" : new_cache ? " | " : " ";
    if (!empty_ && line_.size() + gap.size() + width_ > kColumns) {
      lines_.push_back(std::move(line_));
      line_ = indent_;
      if (new_cache) line_ += "| ";
    } else {
      line_ += gap;
    }
    line_ += fmt::format("{:>{}}", cell, width_);
    empty_ = false;
  }
  void finish(std::vector<std::string>& out) {
    lines_.push_back(std::move(line_));
    out.insert(out.end(), lines_.begin(), lines_.end());
  }

 private:
  std::string indent_;
  std::string line_;
  std::size_t width_;
  std::vector<std::string> lines_;
  bool empty_ = true;
};

}  // namespace

std::vector<std::string> draw_bindings(const Topology& topology,
                                       const std::vector<std::vector<int>>& cpusets) {
  std::map<int, RankSet> ranks_of_cpu;
  for (std::size_t rank = 0; rank < cpusets.size(); ++rank) {
    for (const int cpu : cpusets[rank]) ranks_of_cpu[cpu].insert(static_cast<int>(rank));
  }
  if (ranks_of_cpu.empty()) {
    return {fmt::format("no worker is bound: all may use all {} cores", topology.cores.size())};
  }
  std::vector<std::string> cells;
  std::size_t width = 1;
  for (const CpuCore& core : topology.cores) {
    RankSet ranks;
    for (const int cpu : core.cpus) ranks.merge(RankSet(ranks_of_cpu[cpu]));
    cells.push_back(ranks.empty() ? "." : format_rank_set(ranks));
    width = std::max(width, cells.back().size());
  }

  std::vector<std::string> lines;
  for (std::size_t i = 0; i < cells.size();) {
    const CpuCore& first = topology.cores[i];
    Row row(fmt::format("socket {} numa {}: ", first.socket, first.numa), width);
    int l3 = first.l3;
    for (; i < cells.size() && topology.cores[i].socket == first.socket &&
           topology.cores[i].numa == first.numa;
         ++i) {
      row.add(cells[i], topology.cores[i].l3 != l3);
      l3 = topology.cores[i].l3;
    }
    row.finish(lines);
  }
  for (std::size_t rank = 0; rank < cpusets.size(); ++rank) {
    const RankSet cpus(cpusets[rank].begin(), cpusets[rank].end());
    lines.push_back(fmt::format("rank {}: CPUs {}", rank, format_rank_set(cpus)));
  }
  lines.push_back("each cell is a core with its ranks, '.' has none, '|' parts L3 caches");
  return lines;
}

}  // namespace dlaunch

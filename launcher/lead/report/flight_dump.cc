#include "launcher/lead/report/flight_dump.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/pickle_writer.h"
#include "base/ring_names.h"

namespace dlaunch {
namespace {

constexpr std::string_view kDumpVersion = "2.10";
// PyTorch's names, by dl_dtype.
constexpr std::string_view kTorchDtypes[] = {
    "Char",     "Byte",  "Int",    "UInt32",       "Long",          "UInt64",        "Half",
    "BFloat16", "Float", "Double", "ComplexFloat", "ComplexDouble", "Float8_e4m3fn", "Float8_e5m2"};
static_assert(std::size(kTorchDtypes) == std::size(kDtypeNames));

struct DumpGroup {
  std::vector<int> members;
  std::uint64_t first = 0;  // the records of all members reach back to this collective
  // By seq and kind. The largest, where the members have different ones, as in an all_gather_v:
  // torchfrtrace would take that for an error, and libdlring reports such errors itself.
  std::map<std::pair<std::uint64_t, std::uint8_t>, std::uint64_t> counts;
};
using DumpGroups = std::map<std::uint32_t, DumpGroup>;

bool is_dumped(const FlightEntry& entry) {
  return entry.kind < std::size(kCollectiveNames) && entry.dtype < std::size(kTorchDtypes);
}

DumpGroups groups_in(const std::map<int, const WorkerEnd*>& workers, int ranks) {
  DumpGroups groups;
  groups[0].members.resize(static_cast<std::size_t>(ranks));
  std::iota(groups[0].members.begin(), groups[0].members.end(), 0);
  for (const auto& [rank, worker] : workers) {
    const bool lost_some = worker->flight.front().number > 1;
    std::map<std::uint32_t, std::uint64_t> first;
    for (const FlightEntry& entry : worker->flight) {
      if (!is_dumped(entry)) continue;
      const auto [at, fresh] = first.emplace(entry.group, entry.seq);
      at->second = std::min(at->second, entry.seq);
      DumpGroup& group = groups[entry.group];
      if (fresh && entry.group != 0) group.members.push_back(rank);
      std::uint64_t& count = group.counts[{entry.seq, entry.kind}];
      count = std::max(count, entry.count);
    }
    for (const auto& [group, seq] : first) {
      if (lost_some) groups[group].first = std::max(groups[group].first, seq);
    }
  }
  return groups;
}

// The elements that go into a collective and come out of it at one rank.
std::pair<std::uint64_t, std::uint64_t> sizes_of(const FlightEntry& entry, const DumpGroup& of) {
  const std::string_view name = kCollectiveNames[entry.kind];
  const std::uint64_t count = of.counts.at({entry.seq, entry.kind});
  const std::uint64_t all = count * of.members.size();
  const bool in_all = name == "reduce_scatter" || name == "scatter" || name == "all_to_all";
  const bool out_all = name == "all_gather" || name == "gather" || name == "all_to_all";
  return {in_all ? all : count, out_all ? all : count};
}

// PyTorch's analyser refuses names that it does not know. So such a call has the name of an
// all_reduce, which has as many elements in and out; the analyser cannot tell the two apart.
std::string_view torch_name(std::string_view collective) {
  return is_composed_name(collective) ? "all_reduce" : collective;
}

class DumpWriter {
 public:
  std::string write(int rank, const WorkerEnd& worker, const DumpGroups& groups) {
    pickle_.begin_dict();
    text("version", kDumpVersion);
    key("pg_config").begin_dict();
    for (const auto& [number, group] : groups) {
      if (std::binary_search(group.members.begin(), group.members.end(), rank)) {
        write(number, group);
      }
    }
    pickle_.end_dict();
    key("entries").begin_list();
    for (const FlightEntry& entry : worker.flight) {
      if (!is_dumped(entry)) continue;
      const DumpGroup& group = groups.at(entry.group);
      if (entry.seq >= group.first) write(entry, group, worker.ended);
    }
    pickle_.end_list();
    pickle_.end_dict();
    return pickle_.finish();
  }

 private:
  PickleWriter& key(std::string_view name) {
    pickle_.text(name);
    return pickle_;
  }
  void text(std::string_view name, std::string_view words) { key(name).text(words); }
  static std::string_view description(std::uint32_t group) {
    return group == 0 ? "default_pg" : "group";
  }
  void write(std::uint32_t number, const DumpGroup& group) {
    key(std::to_string(number)).begin_dict();
    text("name", std::to_string(number));
    text("desc", description(number));
    text("ranks", fmt::format("[{}]", fmt::join(group.members, ", ")));
    pickle_.end_dict();
  }
  void sizes(std::string_view name, std::uint64_t elements) {
    key(name).begin_list();
    pickle_.begin_list();
    if (elements > 0) pickle_.integer(static_cast<std::int64_t>(elements));
    pickle_.end_list();
    pickle_.end_list();
  }
  void dtypes(std::string_view name, std::uint8_t dtype) {
    key(name).begin_list();
    pickle_.text(kTorchDtypes[dtype]);
    pickle_.end_list();
  }
  // Times are relative to the worker's end: clocks of hosts differ.
  void write(const FlightEntry& entry, const DumpGroup& of, TimePoint end) {
    const auto [in, out] = sizes_of(entry, of);
    const bool done = entry.state == FlightState::done;
    pickle_.begin_dict();
    key("record_id").integer(written_++);
    key("pg_id").integer(entry.group);
    key("process_group").begin_tuple();
    pickle_.text(std::to_string(entry.group));
    pickle_.text(description(entry.group));
    pickle_.end_tuple();
    key("collective_seq_id").integer(static_cast<std::int64_t>(entry.seq));
    key("p2p_seq_id").integer(0);
    key("op_id").integer(static_cast<std::int64_t>(entry.seq));
    text("profiling_name", fmt::format("dlring:{}", torch_name(kCollectiveNames[entry.kind])));
    key("time_created_ns").integer((entry.started - end).count());
    sizes("input_sizes", in);
    dtypes("input_dtypes", entry.dtype);
    sizes("output_sizes", out);
    dtypes("output_dtypes", entry.dtype);
    text("state", done ? "completed" : "started");
    key("is_p2p").boolean(false);
    key("retired").boolean(done);
    key("frames").begin_list();
    pickle_.end_list();
    pickle_.end_dict();
  }

  PickleWriter pickle_;
  std::int64_t written_ = 0;
};

}  // namespace

std::map<int, std::string> flight_dumps(const std::vector<WorkerEnd>& workers, int ranks) {
  std::map<int, const WorkerEnd*> last;
  for (const WorkerEnd& worker : workers) {
    if (worker.rank >= 0 && worker.rank < ranks && !worker.flight.empty() &&
        !worker.flight_is_nccl) {
      last[worker.rank] = &worker;
    }
  }
  const DumpGroups groups = groups_in(last, ranks);
  std::map<int, std::string> dumps;
  for (const auto& [rank, worker] : last) {
    dumps[rank] = DumpWriter().write(rank, *worker, groups);
  }
  return dumps;
}

}  // namespace dlaunch

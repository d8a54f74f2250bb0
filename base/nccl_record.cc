#include "base/nccl_record.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "base/ring_names.h"

namespace dlaunch {
namespace {

// NcclCommRecord as plain bytes: an atomic cannot be copied.
struct CopiedComm {
  std::uint64_t version, id;
  std::int32_t ranks, rank;
  std::uint64_t enqueued, begun, open, last;
  std::uint8_t kernels, message, destroyed;
  char name[sizeof NcclCommRecord::name];
  NcclCall calls[kNcclCalls];
  std::uint64_t next_version;
};
static_assert(offsetof(CopiedComm, next_version) == offsetof(NcclCommRecord, next_version));

// More than any program calls; below it, numbers of collectives do not overflow.
constexpr std::uint64_t kMostCollectives = std::uint64_t{1} << 62;

bool is_known_call(const NcclCall& call) {
  return call.what < std::size(kCollectiveNames) && call.dtype < std::size(kDtypeNames);
}

NcclProgress progress_of(const CopiedComm& comm) {
  NcclProgress progress{.comm = comm.id,
                        .ranks = comm.ranks,
                        .rank = comm.rank,
                        .name = std::string(comm.name, ::strnlen(comm.name, sizeof comm.name)),
                        .enqueued = comm.enqueued,
                        .begun = comm.begun,
                        .open = comm.open,
                        .last_operation = comm.last,
                        .kernels = comm.kernels != 0,
                        .message = comm.message != 0,
                        .destroyed = comm.destroyed != 0,
                        .last = {}};
  const std::uint64_t known = std::min<std::uint64_t>(comm.enqueued, kNcclCalls);
  for (std::uint64_t number = comm.enqueued - known + 1; number <= comm.enqueued; ++number) {
    progress.last.push_back(comm.calls[number % kNcclCalls]);
  }
  return progress;
}

}  // namespace

bool are_same(const NcclCall& a, const NcclCall& b) {
  const bool rooted = is_known_call(a) && has_root(a.what);
  return a.count == b.count && a.what == b.what && a.dtype == b.dtype &&
         (!rooted || a.root == b.root);
}

std::string in_words(const NcclCall& call) {
  if (!is_known_call(call)) return "an unknown collective";
  const auto name = kCollectiveNames[call.what];
  return fmt::format("{} (count {}, {}{})", name, call.count, kDtypeNames[call.dtype],
                     has_root(call.what) ? fmt::format(", root {}", call.root) : "");
}

std::string in_words(const NcclProgress& progress) {
  return "NCCL communicator " +
         (progress.name.empty() ? fmt::format("{:016x}", progress.comm) : progress.name);
}

std::vector<NcclProgress> read_nccl(std::string_view bytes) {
  std::vector<NcclProgress> all;
  for (std::size_t i = 0; i < kNcclComms; ++i) {
    const std::size_t at = offsetof(NcclFile, comms) + i * sizeof(NcclCommRecord);
    if (at + sizeof(NcclCommRecord) > bytes.size()) break;
    CopiedComm comm;
    std::memcpy(&comm, bytes.data() + at, sizeof comm);
    if (comm.id == 0 || comm.version != comm.next_version || comm.ranks < 0) continue;
    if (comm.enqueued > kMostCollectives) continue;
    if (comm.begun > comm.enqueued || comm.open > comm.begun) continue;
    auto progress = progress_of(comm);
    if (std::all_of(progress.last.begin(), progress.last.end(), is_known_call)) {
      all.push_back(std::move(progress));
    }
  }
  return all;
}

std::vector<FlightEntry> read_nccl_flight(std::string_view bytes) {
  std::map<std::uint32_t, std::string> comms;
  for (const auto& progress : read_nccl(bytes)) {
    comms[static_cast<std::uint32_t>(progress.comm)] = in_words(progress);
  }
  auto entries = read_flight(bytes.substr(0, kFlightBytes));
  for (auto& entry : entries) {
    const auto comm = comms.find(entry.group);
    entry.what += " on " + (comm == comms.end() ? "an NCCL communicator" : comm->second);
  }
  return entries;
}

}  // namespace dlaunch

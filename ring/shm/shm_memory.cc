#include "ring/shm/shm_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace dlaunch {
namespace {

// The room in the slots of one shot; plan_shm() decides how much goes that way.
constexpr std::size_t small_limit(int ranks) { return ranks == 2 ? 16 << 10 : 8 << 10; }
constexpr int kSmallSlots = 4;
constexpr std::size_t kFewRanks = 16;
// For a group: the total of its ranks' small slots, if that leaves each slot the least; and the
// most for one slot.
constexpr std::size_t kGroupSmall = 56 << 10, kLeastGroupSmall = 512, kMostGroupSmall = 4 << 10;
// The data in flight, four chunks of each rank, fit a second-level cache. (With 1 MiB of cache
// these chunks were faster by 8 % at 64 MiB than chunks of half the size, and nowhere slower.)
constexpr std::size_t kExchangeChunk = 128 << 10, kLeastExchangeChunk = 64 << 10;

std::size_t second_level_cache() {
  const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{1} << 20;
}

// For two ranks, whose ordinary chunk is a quarter of that cache.
std::size_t exchange_chunk(std::size_t chunk) {
  return std::min(chunk, std::clamp(chunk / 2, kLeastExchangeChunk, kExchangeChunk));
}

constexpr std::size_t kLargeSegment = 16 << 20;
// Of all ranks of a host; 256 of them need some more than a GiB.
constexpr std::size_t kMostStaging = std::size_t{1100} << 20;

// Memory that is free without taking it from other uses.
std::size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("MemAvailable:")) return std::strtoull(&line[13], nullptr, 10) << 10;
  }
  // Without /proc: the free memory, which is less.
  return static_cast<std::size_t>(::sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Error not_allocated(std::size_t bytes, int os_errno, const char* why = "") {
  const std::string size = bytes >= kLargeSegment ? std::to_string(bytes >> 20) + " MiB"
                                                  : std::to_string(bytes >> 10) + " KiB";
  return errno_error("shared memory: allocate " + size + why, os_errno);
}

// Memory counts as a file there, and the kernel kills a process that makes one beyond that limit.
Result<void> within_file_limit(std::size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return {};
  return not_allocated(bytes, EFBIG, " (ulimit -f)");
}

// A file of that size without memory.
Result<UniqueFd> make_memfd(const char* name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error("shared memory: memfd_create", errno);
  // Allocation would first push everything else out.
  if (lacks_memory(bytes)) return not_allocated(bytes, ENOMEM);
  if (auto ok = within_file_limit(bytes); !ok) return ok.error();
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return not_allocated(bytes, errno);
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return fd;
}

// Commits the memory now: a full machine is an Error here, not a SIGBUS later. The pages are near
// the process that allocates them.
Result<void> allocate(int fd, std::size_t from, std::size_t bytes) {
  if (::fallocate(fd, 0, static_cast<off_t>(from), static_cast<off_t>(bytes)) == 0) return {};
  return not_allocated(bytes, errno);
}

Result<UniqueFd> make_allocated(const char* name, std::size_t bytes) {
  auto fd = make_memfd(name, bytes);
  if (!fd) return fd;
  if (auto ok = allocate(fd->get(), 0, bytes); !ok) return ok.error();
  return fd;
}

Result<std::shared_ptr<void>> map(int fd, std::size_t bytes, int protection, bool populate = true,
                                  std::size_t from = 0) {
  struct stat st {};
  if (::fstat(fd, &st) != 0 || static_cast<std::size_t>(st.st_size) < from + bytes) {
    return Error{.code = Errc::protocol, .what = "shared memory: a peer's segment is too small"};
  }
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED | (populate ? MAP_POPULATE : 0), fd,
                         static_cast<off_t>(from));
  if (address == MAP_FAILED) return errno_error("shared memory: map", errno);
  return std::shared_ptr<void>(address, [bytes](void* p) { ::munmap(p, bytes); });
}

}  // namespace

bool lacks_memory(std::size_t bytes) { return bytes > kLargeSegment && bytes > available_memory(); }

ShmShape shape_for(int ranks) {
  const std::size_t share = second_level_cache() / (2 * static_cast<std::size_t>(ranks));
  // Many ranks have many slots: smaller chunks keep the staging of all ranks together bounded.
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t most =
      std::max<std::size_t>(kMostStaging / (kSlots * n * (n + 1)) / 64 * 64, 64);
  const std::size_t least = ranks <= 64 ? 16 << 10 : 4 << 10;
  const std::size_t chunk =
      std::min(std::clamp<std::size_t>(share, least, 256 << 10) / 4096 * 4096, most);
  return {.ranks = ranks,
          .chunk_bytes = chunk,
          .small_bytes = small_limit(ranks),
          .exchange_bytes = ranks == 2 ? exchange_chunk(chunk) : 0};
}

ShmShape shape_for_group(int ranks, std::size_t staging_bytes) {
  const auto n = static_cast<std::size_t>(ranks);
  ShmShape shape = shape_for(ranks);
  const std::size_t room = staging_bytes / (kSlots * (n + 1));
  shape.chunk_bytes = std::min(shape.chunk_bytes, room / 64 * 64);
  const std::size_t small = kGroupSmall / (kSmallSlots * n) / 64 * 64;
  shape.small_bytes = std::clamp(small, kLeastGroupSmall, kMostGroupSmall);
  return shape;
}

std::size_t ShmShape::pair() const {
  return (sizeof(ShmHeader) + sizeof(ShmRank) * ranks + 4095) / 4096 * 4096;
}
std::size_t ShmShape::control_bytes() const {
  return ranks == 2 ? pair_small(ranks) : pair() + pair_bytes();
}
std::size_t ShmShape::pair_small(int r) const {
  return pair() + pair_bytes() + kSmallSlots * static_cast<std::size_t>(r) * small_bytes;
}
std::size_t ShmShape::pair_bytes() const {
  return std::size_t{2} * (kSlots + kTransferSlots) * exchange_bytes;
}
std::size_t ShmShape::exchange(int owner, std::uint64_t block) const {
  return (std::size_t{kSlots} * owner + block % kSlots) * exchange_bytes;
}
// A rank's block lies where the other rank's was kTransferSlots blocks before.
std::size_t ShmShape::transfer(int giver, std::uint64_t block) const {
  const std::uint64_t half = (block / kTransferSlots + static_cast<std::uint64_t>(giver)) % 2;
  return exchange(2, 0) + (kTransferSlots * half + block % kTransferSlots) * exchange_bytes;
}
std::size_t ShmShape::staging(std::uint64_t block, int chunk) const {
  return (block % kSlots * ranks + chunk) * chunk_bytes;
}
std::size_t ShmShape::result(std::uint64_t block) const {
  return (std::size_t{kSlots} * ranks + block % kSlots) * chunk_bytes;
}
std::size_t ShmShape::staging_bytes() const {
  return std::size_t{kSlots} * (ranks + 1) * chunk_bytes;
}
std::size_t ShmShape::data_stride() const {
  constexpr std::size_t kLargestPage = 64 << 10;  // of aarch64 and ppc64le
  return (data_bytes() + kLargestPage - 1) / kLargestPage * kLargestPage;
}
std::size_t ShmShape::small(std::uint64_t seq) const { return seq % kSmallSlots * small_bytes; }
std::size_t ShmShape::data_bytes() const {
  return staging_bytes() + (ranks == 2 ? 0 : kSmallSlots * small_bytes);
}
std::size_t ShmShape::group_small(int r) const {
  return sizeof(ShmHeader) + sizeof(ShmRank) * ranks +
         std::size_t{kSmallSlots} * static_cast<std::size_t>(r) * small_bytes;
}

Result<UniqueFd> make_shm_control(const ShmShape& shape, std::size_t bytes) {
  auto fd = make_allocated("dlring-control", bytes);
  if (!fd) return fd.error();
  auto mapping = map(fd->get(), sizeof(ShmHeader), PROT_READ | PROT_WRITE);
  if (!mapping) return mapping.error();
  auto* header = new (mapping->get()) ShmHeader;  // NOLINT: placement
  header->ranks = static_cast<std::uint32_t>(shape.ranks);
  header->chunk_bytes = shape.chunk_bytes;
  header->small_bytes = shape.small_bytes;
  header->exchange_bytes = shape.exchange_bytes;
  return fd;
}

Result<UniqueFd> make_shm_control(int ranks) {
  const ShmShape shape = shape_for(ranks);
  return make_shm_control(shape, shape.control_bytes());
}

Result<UniqueFd> make_group_control(const ShmShape& shape) {
  return make_shm_control(shape, shape.group_small(shape.ranks));
}

Result<ShmData> make_shm_segment(const char* name, std::size_t bytes, ShmWriters writers) {
  auto fd = make_allocated(name, bytes);
  if (!fd) return fd.error();
  auto mapping = map(fd->get(), bytes, PROT_READ | PROT_WRITE);
  if (!mapping) return mapping.error();
  // From here on no process can map it writable: a confused peer cannot damage this rank's data.
  // Kernels before 5.1 lack the seal; there well-behaved peers still map it read-only.
  if (writers == ShmWriters::owner) ::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  return ShmData{std::move(*fd), std::move(*mapping), bytes};
}

Result<std::shared_ptr<void>> map_shm_segment(const UniqueFd& fd, std::size_t bytes,
                                              ShmWriters writers) {
  return map(fd.get(), bytes, writers == ShmWriters::both ? PROT_READ | PROT_WRITE : PROT_READ);
}

Result<UniqueFd> make_shm_data(int ranks) {
  return make_memfd("dlring-data",
                    static_cast<std::size_t>(ranks) * shape_for(ranks).data_stride());
}

void seal_shm_data(const UniqueFd& data) {
  // Kernels before 5.1 lack the seal; there well-behaved ranks still write only to their own part.
  ::fcntl(data.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
}

namespace {

// Maps the control segment, and checks that its maker and this rank agree on its layout.
Result<ShmMemory> map_control(const UniqueFd& control, const ShmShape& shape, std::size_t bytes,
                              bool populate) {
  ShmMemory memory;
  memory.shape = shape;
  auto mapping = map(control.get(), bytes, PROT_READ | PROT_WRITE, populate);
  if (!mapping) return mapping.error();
  memory.header = static_cast<ShmHeader*>(mapping->get());
  memory.ranks = reinterpret_cast<ShmRank*>(memory.header + 1);
  memory.keep.push_back(std::move(*mapping));
  if (memory.header->ranks != static_cast<std::uint32_t>(shape.ranks) ||
      memory.header->rank_bytes != sizeof(ShmRank) ||
      memory.header->chunk_bytes != memory.shape.chunk_bytes ||
      memory.header->small_bytes != memory.shape.small_bytes ||
      memory.header->exchange_bytes != memory.shape.exchange_bytes) {
    return Error{.code = Errc::protocol,
                 .what =
                     "shared memory: the ranks disagree on the layout; do all run the same "
                     "version of libdlring?"};
  }
  return memory;
}

}  // namespace

Result<ShmMemory> map_group(int rank, const ShmShape& shape, const UniqueFd& control) {
  auto memory = map_control(control, shape, shape.group_small(shape.ranks), false);
  if (!memory) return memory;
  char* const begin = reinterpret_cast<char*>(memory->header);
  memory->own_small = begin + shape.group_small(rank);
  for (int r = 0; r < shape.ranks; ++r) memory->small.push_back(begin + shape.group_small(r));
  return memory;
}

Result<ShmMemory> map_shm(int rank, int ranks, const UniqueFd& control, const UniqueFd& data) {
  const ShmShape shape = shape_for(ranks);
  auto mapped = map_control(control, shape, shape.control_bytes(), true);
  if (!mapped) return mapped;
  ShmMemory memory = std::move(*mapped);
  const std::size_t stride = shape.data_stride(), n = static_cast<std::size_t>(ranks);
  const std::size_t at = static_cast<std::size_t>(rank) * stride;
  // The kernel limits only the rank that made the file; a limit holds for every rank's own part.
  if (auto ok = within_file_limit(stride); !ok) return ok.error();
  if (auto ok = allocate(data.get(), at, stride); !ok) return ok.error();
  auto own = map(data.get(), stride, PROT_READ | PROT_WRITE, true, at);
  if (!own) return own.error();
  auto all = map(data.get(), n * stride, PROT_READ, false);
  if (!all) return all.error();
  memory.own = static_cast<char*>(own->get());
  for (std::size_t r = 0; r < n; ++r) {
    const char* const theirs = static_cast<const char*>(all->get()) + r * stride;
    memory.data.push_back(r == static_cast<std::size_t>(rank) ? memory.own : theirs);
  }
  memory.keep.push_back(std::move(*own));
  memory.keep.push_back(std::move(*all));
  memory.find_small(rank);
  return memory;
}

// Page tables of all ranks' parts at once are worth it only for few ranks.
void ShmMemory::fault_in() const {
#ifdef MADV_POPULATE_READ
  for (const char* part : data) {
    if (data.size() > kFewRanks || part == own) continue;
    ::madvise(const_cast<char*>(part), shape.data_stride(), MADV_POPULATE_READ);
  }
#endif
}

void ShmMemory::find_small(int rank) {
  char* const control = reinterpret_cast<char*>(header);
  const bool pair = shape.ranks == 2;
  own_small = pair ? control + shape.pair_small(rank) : own + shape.staging_bytes();
  for (int r = 0; r < shape.ranks; ++r) {
    const char* const part = data[static_cast<std::size_t>(r)];
    small.push_back(pair ? control + shape.pair_small(r) : part + shape.staging_bytes());
  }
}

Result<Neighbourhood> map_neighbourhood(const UniqueFd& control, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  auto mapping =
      map(control.get(), sizeof(ShmHeader) + n * sizeof(ShmRank), PROT_READ | PROT_WRITE, false);
  if (!mapping) return mapping.error();
  Neighbourhood found{{.words = {}, .keep = *mapping}, {.of = {}, .keep = *mapping}};
  auto* const all = reinterpret_cast<ShmRank*>(static_cast<ShmHeader*>(mapping->get()) + 1);
  for (std::size_t r = 0; r < n; ++r) {
    found.lives.words.push_back(&all[r].life);
    found.contacts.of.push_back(&all[r].contact);
  }
  return found;
}

}  // namespace dlaunch

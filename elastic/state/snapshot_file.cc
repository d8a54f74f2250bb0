#include "elastic/state/snapshot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/codec.h"
#include "base/unique_fd.h"
#include "base/write_all.h"
#include "elastic/state/plan.h"
#include "elastic/state/pull.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "dlstate1";
constexpr std::string_view kEnding = ".dlstate", kUnfinished = ".new";
constexpr std::size_t kPrefixBytes = 16;
constexpr std::uint32_t kHeaderBytesMax = 64 << 20;

std::string file_name(const Snapshot& s) {
  const std::string object =
      s.object == kReplicated ? "replicated" : fmt::format("shard-{}-of-{}", s.object - 1, s.world);
  return fmt::format("commit-{}-{}.{}{}", s.id.version.round, s.id.version.number, object, kEnding);
}

std::optional<Version> version_in(const std::string& name) {
  unsigned long long round = 0, number = 0;
  int used = 0;
  if (std::sscanf(name.c_str(), "commit-%llu-%llu.%n", &round, &number, &used) != 2 || used == 0) {
    return std::nullopt;
  }
  if (!name.ends_with(kEnding) &&
      !name.ends_with(std::string(kEnding) + std::string(kUnfinished))) {
    return std::nullopt;
  }
  return Version{round, number};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::uint32_t sum_of(std::string_view header) {
  const auto table = piece_table(bytes_of(header));
  return table.empty() ? 0 : table.front();
}

std::string encode_header(const Snapshot& s) {
  Writer out;
  for (const auto value : {s.id.version.round, s.id.version.number, s.id.layout, s.bytes}) {
    out.put(value);
  }
  out.put(std::int32_t{s.object});
  out.put(std::int32_t{s.world});
  out.put_string(s.description);
  out.put(static_cast<std::uint64_t>(s.table.size()));
  for (const auto sum : s.table) out.put(sum);
  return out.take();
}

bool decode_header(std::string_view bytes, Snapshot& s) {
  Reader in(bytes);
  for (auto* value : {&s.id.version.round, &s.id.version.number, &s.id.layout, &s.bytes}) {
    *value = in.get<std::uint64_t>();
  }
  s.object = in.get<std::int32_t>();
  s.world = in.get<std::int32_t>();
  s.description = in.get_string(kHeaderBytesMax);
  const auto pieces = in.get<std::uint64_t>();
  if (!in.ok() || pieces != piece_count(s.bytes) || in.left() != pieces * sizeof s.table[0]) {
    return false;
  }
  for (std::uint64_t i = 0; i < pieces; ++i) s.table.push_back(in.get<std::uint32_t>());
  return in.done() && s.world >= 0 && s.object >= 0 && s.object <= s.world;
}

Result<void> append(int fd, std::span<const std::byte> bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const int err = write_all(fd, text).os_errno) return errno_error("write " + path, err);
  return {};
}

// Returns the number of bytes read: fewer only at the end of the file.
Result<std::size_t> read_at(int fd, std::span<std::byte> bytes, std::size_t offset,
                            const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto n =
        ::pread(fd, bytes.data() + done, std::min<std::size_t>(bytes.size() - done, 1 << 30),
                static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read " + path, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

Error damaged(const std::string& path, const char* how) {
  return {.code = Errc::io, .what = fmt::format("snapshot {} is damaged: {}", path, how)};
}

Result<Snapshot> read_header(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_error("open " + path, errno);
  std::string prefix(kPrefixBytes, '\0');
  auto n = read_at(fd.get(), std::as_writable_bytes(std::span(prefix)), 0, path);
  if (!n) return n.error();
  Reader in(std::string_view(prefix).substr(0, *n));
  if (in.get_raw(kMagic.size()) != kMagic)
    return damaged(path, "it does not begin like a snapshot");
  const auto header_bytes = in.get<std::uint32_t>(), sum = in.get<std::uint32_t>();
  if (!in.ok() || header_bytes > kHeaderBytesMax) return damaged(path, "its header is too short");
  std::string header(header_bytes, '\0');
  n = read_at(fd.get(), std::as_writable_bytes(std::span(header)), kPrefixBytes, path);
  if (!n) return n.error();
  Snapshot s{.path = path};
  if (*n != header.size() || sum_of(header) != sum || !decode_header(header, s)) {
    return damaged(path, "the checksum of its header is wrong");
  }
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return errno_error("stat " + path, errno);
  if (static_cast<std::uint64_t>(about.st_size) != kPrefixBytes + header_bytes + s.bytes) {
    return damaged(path, "some of its bytes are missing");
  }
  return s;
}

Result<void> write_file(const std::string& path, std::string_view start,
                        std::span<const std::byte> content) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return errno_error("create " + path, errno);
  if (auto r = append(fd.get(), bytes_of(start), path); !r) return r;
  if (auto r = append(fd.get(), content, path); !r) return r;
  if (::fsync(fd.get()) != 0) return errno_error("write " + path + " to the disk", errno);
  return {};
}

// The new name itself must be on the disk, too.
Result<void> sync_folder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno_error("open " + folder, errno);
  // EINVAL: this file system has nothing to sync here.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return errno_error("sync " + folder, errno);
  return {};
}

}  // namespace

Result<void> make_snapshot_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return errno_error("make the snapshot folder " + folder, error.value());
  return {};
}

Result<void> write_snapshot(const std::string& folder, Snapshot s,
                            std::span<const std::byte> content) {
  s.bytes = content.size();
  s.table = piece_table(content);
  s.path = folder + "/" + file_name(s);
  const std::string header = encode_header(s);
  Writer start;
  start.put_raw(kMagic);
  start.put(static_cast<std::uint32_t>(header.size()));
  start.put(sum_of(header));
  start.put_raw(header);
  const std::string fresh = s.path + std::string(kUnfinished);
  auto written = write_file(fresh, start.bytes(), content);
  if (written && ::rename(fresh.c_str(), s.path.c_str()) != 0) {
    written = errno_error("rename " + fresh, errno);
  }
  if (!written) {
    ::unlink(fresh.c_str());
    return written;
  }
  return sync_folder(folder);
}

Result<SnapshotList> list_snapshots(const std::string& folder) {
  SnapshotList list;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    const auto version = version_in(name);
    if (!version) continue;
    list.last_round = std::max(list.last_round, version->round);
    if (name.ends_with(kUnfinished)) continue;
    auto snapshot = read_header(it->path());
    if (snapshot) {
      list.intact.push_back(std::move(*snapshot));
    } else {
      list.damaged.push_back(snapshot.error().what);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return errno_error("read the snapshot folder " + folder, error.value());
  }
  return list;
}

Result<void> read_snapshot(const Snapshot& snapshot, std::span<std::byte> content) {
  const UniqueFd fd(::open(snapshot.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_error("open " + snapshot.path, errno);
  const std::size_t start = kPrefixBytes + encode_header(snapshot).size();
  const auto n = read_at(fd.get(), content, start, snapshot.path);
  if (!n) return n.error();
  if (*n != content.size()) return damaged(snapshot.path, "some of its bytes are missing");
  if (piece_table(content) != snapshot.table) {
    return damaged(snapshot.path, "a checksum of its content is wrong");
  }
  return {};
}

void SnapshotsToKeep::take(std::vector<Version> versions) {
  complete = std::move(versions);
  if (complete.size() > number) complete.resize(number);
}

void SnapshotsToKeep::add(const Version& version) {
  if (!complete.empty() && complete.front() == version) return;
  complete.insert(complete.begin(), version);
  take(std::move(complete));
}

bool SnapshotsToKeep::contains(const Version& version) const {
  if (std::ranges::find(complete, version) != complete.end()) return true;
  if (judged_from != Version() && version >= judged_from) return false;
  return complete.size() < number || version > complete.back();
}

void prune_snapshots(const std::string& folder, const Version& before,
                     const SnapshotsToKeep& keep) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    const auto version = version_in(name);
    if (!version || !(*version < before)) continue;
    if (name.ends_with(kUnfinished) || !keep.contains(*version)) ::unlink(it->path().c_str());
  }
}

}  // namespace dlaunch

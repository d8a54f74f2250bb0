// OwnBinary: the file of this very program, as other hosts are asked for it.
//
// Whether a host has the same is seen by its size and by the linker's build ID, a hash of all that
// was linked, at the same place in it. A hash of the whole file, some 40 MB with debug information,
// would take each host longer than the login.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class OwnBinary {
 public:
  // Error: /proc is not there, or the file cannot be read.
  static Result<OwnBinary> open();

  const std::string& path() const { return path_; }
  std::size_t size() const { return size_; }
  // Empty: it has none in its first 4 KiB, and no host is known to have the same.
  const std::string& build_id() const { return build_id_; }
  std::size_t build_id_at() const { return build_id_at_; }
  // All of it; blocks for as long as the disk takes.
  Result<std::string> read() const { return read(size_); }

 private:
  Result<std::string> read(std::size_t size) const;

  UniqueFd file_;
  std::string path_, build_id_;
  std::size_t size_ = 0, build_id_at_ = 0;
};

// Whether the file there, of any name, is the one that this process runs.
bool is_own_binary(const std::string& path);

// The build ID of an ELF file of our own kind (64 bit, this machine's byte order) among these first
// bytes of it, or an empty one. Any bytes will do.
std::string_view find_build_id(std::string_view start);

}  // namespace dlaunch

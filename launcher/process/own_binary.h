// OwnBinary: the file of this program, for hosts that ask for it.
// A host recognises the same file by its size and by the linker's build ID, a hash of all linked
// code, at the same offset. A hash of the whole file, some 40 MB with debug information, would take
// each host longer than the login.
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
  // Empty: the file has none in its first 4 KiB, and no host counts as having the same file.
  const std::string& build_id() const { return build_id_; }
  std::size_t build_id_at() const { return build_id_at_; }
  // The whole file; blocks for as long as the disk takes.
  Result<std::string> read() const { return read(size_); }

 private:
  Result<std::string> read(std::size_t size) const;

  UniqueFd file_;
  std::string path_, build_id_;
  std::size_t size_ = 0, build_id_at_ = 0;
};

// Whether this process runs the file at `path`, under any name.
bool is_own_binary(const std::string& path);

// The build ID of an ELF file of our own kind (64 bit, this machine's byte order) in the file's
// first bytes; empty: none. Any bytes are safe.
std::string_view find_build_id(std::string_view start);

}  // namespace dlaunch

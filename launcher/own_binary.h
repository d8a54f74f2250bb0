// OwnBinary: the file of this very program, as other hosts are asked for it.
//
// Whether a host has the same is seen by its size and its first bytes: those hold the ELF headers
// and the linker's build ID, a hash of all that was linked. A hash of the whole file, some 30 MB
// with debug information, would take each host longer than the login. Where there is no build ID in
// the first 64 KiB the head is the whole file.
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
  // So many bytes from its start, and their SHA-256 in hex.
  std::size_t head() const { return head_; }
  const std::string& head_hash() const { return head_hash_; }
  // All of it; blocks for as long as the disk takes.
  Result<std::string> read() const { return read(size_); }

 private:
  Result<std::string> read(std::size_t size) const;

  UniqueFd file_;
  std::string path_, head_hash_;
  std::size_t size_ = 0, head_ = 0;
};

// Where the build ID of an ELF file of our own kind (64 bit, this machine's byte order) ends, or 0:
// there is none in these first bytes of it. Any bytes will do.
std::size_t end_of_build_id(std::string_view start);

}  // namespace dlaunch

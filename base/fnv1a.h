// FNV-1a of 64 bits (Fowler, Noll, Vo): the same in every build and on every machine, so that ranks
// and processes may compare hashes. Not for input that an attacker chooses.
#pragma once

#include <cstdint>
#include <string_view>

namespace dlaunch {

class Fnv1a {
 public:
  // Adds an octet, or a wider word at once, which is quicker and gives another hash.
  void add(std::uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001b3; }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace dlaunch

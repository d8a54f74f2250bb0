// Writes a pickle of Python that holds plain data, for base/pickle.h and Python to read. A dict,
// list or tuple contains what is written between its begin and its end; in a dict, a key comes
// before each value. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace dlaunch {

class PickleWriter {
 public:
  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  void begin_tuple() { bytes_ += '('; }
  void end_tuple() { bytes_ += 't'; }
  void text(std::string_view words);
  void integer(std::int64_t value);
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }

  // All of it, once the outermost value is complete.
  std::string finish() { return bytes_ + "."; }

 private:
  void little_endian(std::uint64_t value, int bytes);

  std::string bytes_ = "\x80\x02";                                 // protocol 2
  std::map<std::string, std::uint32_t, std::less<>> known_texts_;  // their places in the memo
};

}  // namespace dlaunch

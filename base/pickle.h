// Reads pickles of Python that hold plain data: numbers, texts, lists, tuples and dicts. It runs no
// code: a pickle that would import or call something is an error. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

// Values refer to each other by index, so that a list may contain itself.
struct PickleValue {
  enum Kind { none, boolean, integer, real, text, list, dict } kind = none;
  std::int64_t number = 0;           // of boolean and integer
  double real_number = 0;            // of real
  std::string words;                 // of text
  std::vector<std::uint32_t> items;  // of list, or a tuple; of dict: key, value, key, value …
};

class Pickle {
 public:
  // Error: it is damaged, too large, or not plain data.
  static Result<Pickle> read(std::string_view bytes);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(std::uint32_t index) const { return values_[index]; }
  // The items of a list; none for another kind.
  std::vector<const PickleValue*> items(const PickleValue& list) const;
  // A value of a dict; null: there is none.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
  // The same as text or integer; "" or `otherwise`: there is none.
  std::string_view text(const PickleValue& dict, std::string_view key) const;
  std::int64_t integer(const PickleValue& dict, std::string_view key, std::int64_t otherwise) const;

 private:
  friend class PickleReader;
  std::vector<PickleValue> values_;
  std::uint32_t root_ = 0;
};

}  // namespace dlaunch

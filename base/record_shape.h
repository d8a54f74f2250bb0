// RecordShape: a hash of how records look on the wire (base/record.h), for two builds to find out
// whether they understand each other. It covers the kinds, sizes and numbers of all members, and
// the last value of each enum. It does not cover names, limits, or what a value means.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/fnv1a.h"
#include "base/record.h"

namespace dlaunch {

class RecordShape {
 public:
  // The value does not matter, only its type.
  template <class T>
  void operator()(const T& record) {
    if constexpr (std::is_same_v<T, bool>) {
      is("bool");
    } else if constexpr (std::is_enum_v<T>) {
      static_assert(std::is_same_v<decltype(kLastOf<T>), const T>, "kLastOf is missing");
      is("enum", static_cast<std::uint64_t>(kLastOf<T>));
    } else if constexpr (std::is_same_v<T, double>) {
      is("double");
    } else if constexpr (std::integral<T>) {
      is(std::is_signed_v<T> ? "signed" : "unsigned", sizeof(T));
    } else if constexpr (std::is_same_v<T, std::string>) {
      is("text");
    } else if constexpr (std::is_same_v<T, Duration>) {
      is("duration");
    } else if constexpr (std::is_same_v<T, TimePoint>) {
      is("time");
    } else {
      is("record");
      for_each_field(record, *this);
      is("end");
    }
  }
  template <class T>
  void operator()(const std::optional<T>&) {
    is("optional");
    (*this)(T{});
  }
  template <class T>
  void operator()(const std::vector<T>&) {
    is("vector");
    (*this)(T{});
  }
  template <class Key, class T>
  void operator()(const std::map<Key, T>&) {
    is("map");
    (*this)(Key{}), (*this)(T{});
  }
  template <class... Records>
  void operator()(const std::variant<Records...>&) {
    is("one of", sizeof...(Records));
    ((*this)(Records{}), ...);
  }

  std::uint64_t value() const { return hash_.value(); }

 private:
  void is(std::string_view kind, std::uint64_t detail = 0) {
    hash_.add(kind);
    hash_.add(detail);
  }

  Fnv1a hash_;
};

template <class Record>
std::uint64_t shape_of() {
  RecordShape shape;
  shape(Record{});
  return shape.value();
}

}  // namespace dlaunch

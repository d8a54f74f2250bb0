// Records: plain structs whose members, in their order, go over a wire or into a file. No second
// list of the members exists, so a new one cannot be forgotten: a member of a kind without an
// encoding does not compile.
//
// Integers and floating-point numbers are little-endian; a bool or an enum is a byte. A text has a
// u32 length before it, a vector or map a u32 count, an optional a bool. A Duration is 64 bits. A
// TimePoint is 64 bits, too: the time since an origin that both ends know by their own clocks.
// Nested records are encoded as their members.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/codec.h"
#include "base/record_fields.h"
#include "base/result.h"
#include "base/text.h"

namespace dlaunch {

// The last value of an enum in a record: `template <> inline constexpr E kLastOf<E> = …;`. The
// reader turns a larger byte into this value.
template <class Enum>
inline constexpr auto kLastOf = nullptr;

struct RecordLimits {
  std::size_t text = 1 << 20;  // bytes
  std::size_t items = 16384;   // in a vector or map
  bool escapes = false;        // escape texts on reading, for a terminal
};

// Cuts longer texts and lists.
class RecordWriter {
 public:
  explicit RecordWriter(const RecordLimits& limits = {}, TimePoint origin = {})
      : limits_(limits), origin_(origin) {}

  template <class T>
  void operator()(const T& value) {
    if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
      writer_.put(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
      writer_.put(std::bit_cast<std::uint64_t>(value));
    } else if constexpr (std::integral<T>) {
      writer_.put(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      writer_.put_string(std::string_view(value).substr(0, limits_.text));
    } else if constexpr (std::is_same_v<T, Duration>) {
      writer_.put(value.count());
    } else if constexpr (std::is_same_v<T, TimePoint>) {
      writer_.put((value - origin_).count());
    } else {
      for_each_field(value, *this);
    }
  }
  template <class T>
  void operator()(const std::optional<T>& value) {
    (*this)(value.has_value());
    if (value) (*this)(*value);
  }
  template <class T>
  void operator()(const std::vector<T>& items) {
    const std::size_t size = std::min(items.size(), limits_.items);
    writer_.put(static_cast<std::uint32_t>(size));
    for (std::size_t i = 0; i < size; ++i) (*this)(items[i]);
  }
  template <class Key, class T>
  void operator()(const std::map<Key, T>& items) {
    std::size_t left = std::min(items.size(), limits_.items);
    writer_.put(static_cast<std::uint32_t>(left));
    for (auto item = items.begin(); left > 0; ++item, --left) {
      (*this)(item->first), (*this)(item->second);
    }
  }
  const std::string& bytes() const { return writer_.bytes(); }
  std::string take() { return writer_.take(); }

 private:
  const RecordLimits limits_;
  const TimePoint origin_;
  Writer writer_;
};

// Reads what RecordWriter wrote, and never past its end. Check done() once, at the end: false if
// any field was short or too long, or if bytes are left over.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes, const RecordLimits& limits = {},
                        TimePoint origin = {})
      : limits_(limits), origin_(origin), reader_(bytes) {}

  template <class T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = reader_.get<std::uint8_t>() != 0;
    } else if constexpr (std::is_enum_v<T>) {
      static_assert(std::is_same_v<decltype(kLastOf<T>), const T>, "kLastOf is missing");
      value = static_cast<T>(
          std::min(reader_.get<std::uint8_t>(), static_cast<std::uint8_t>(kLastOf<T>)));
    } else if constexpr (std::is_same_v<T, double>) {
      value = std::bit_cast<double>(reader_.get<std::uint64_t>());
    } else if constexpr (std::integral<T>) {
      value = reader_.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      const auto text = reader_.get_string(limits_.text);
      value = limits_.escapes ? escaped(text) : std::string(text);
    } else if constexpr (std::is_same_v<T, Duration>) {
      value = std::clamp<Duration>(time(), Duration::zero(), kYear);
    } else if constexpr (std::is_same_v<T, TimePoint>) {
      value = origin_ + std::clamp<Duration>(time(), -kYear, kYear);
    } else {
      for_each_field(value, *this);
    }
  }
  template <class T>
  void operator()(std::optional<T>& value) {
    bool has_value = false;
    (*this)(has_value);
    if (has_value) (*this)(value.emplace());
  }
  template <class T>
  void operator()(std::vector<T>& items) {
    items.clear();
    const std::uint32_t size = count();
    for (std::uint32_t i = 0; i < size && reader_.ok(); ++i) (*this)(items.emplace_back());
  }
  template <class Key, class T>
  void operator()(std::map<Key, T>& items) {
    items.clear();
    const std::uint32_t size = count();
    for (std::uint32_t i = 0; i < size && reader_.ok(); ++i) {
      std::pair<Key, T> both;
      (*this)(both.first), (*this)(both.second);
      items.insert(std::move(both));
    }
  }
  bool done() const { return ok() && reader_.done(); }
  // So far; bytes may be left over.
  bool ok() const { return fits_ && reader_.ok(); }

 private:
  static constexpr Duration kYear = std::chrono::hours(24 * 365);  // sums of these do not overflow

  Duration time() { return Duration(reader_.get<Duration::rep>()); }
  std::uint32_t count() {
    const auto size = reader_.get<std::uint32_t>();
    if (size > limits_.items) fits_ = false;
    return fits_ ? size : 0;
  }

  const RecordLimits limits_;
  const TimePoint origin_;
  Reader reader_;
  bool fits_ = true;
};

template <class T>
std::string encode_record(const T& record, const RecordLimits& limits = {}) {
  RecordWriter out(limits);
  out(record);
  return out.take();
}

// False: the bytes are not exactly such a record.
template <class T>
bool decode_record(std::string_view bytes, T& record, const RecordLimits& limits = {}) {
  RecordReader in(bytes, limits);
  in(record);
  return in.done();
}

// One of several records: a byte with its place in the variant, then the record.
template <class... Records>
void write_message(RecordWriter& out, const std::variant<Records...>& message) {
  out(static_cast<std::uint8_t>(message.index()));
  std::visit(out, message);
}

// False: the bytes begin with none of these records.
template <class... Records>
bool read_message(RecordReader& in, std::variant<Records...>& message) {
  std::uint8_t kind = 0;
  in(kind);
  std::uint8_t number = 0;
  const auto read_if = [&]<class T>(std::in_place_type_t<T>) {
    if (number++ == kind) in(message.template emplace<T>());
  };
  (read_if(std::in_place_type<Records>), ...);
  return kind < sizeof...(Records);
}

// Errc::protocol: the bytes are not exactly one of these records, or its values make no sense.
template <class Message>
Result<Message> decode_message(RecordReader in, bool (*makes_sense)(const Message&)) {
  Message message;
  if (!read_message(in, message)) {
    return Error{.code = Errc::protocol, .what = "a message of an unknown kind"};
  }
  if (!in.done() || !makes_sense(message)) {
    return Error{.code = Errc::protocol, .what = "a malformed message"};
  }
  return message;
}

}  // namespace dlaunch

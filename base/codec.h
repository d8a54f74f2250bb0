// Fixed little-endian layout over byte spans: the one way in which bytes go to and come from a wire
// or a shared file. A Reader never reads past its end: after the first short or oversized field
// ok() is false and every further value is zero or empty, so a parser checks once, at the end.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch {

static_assert(std::endian::native == std::endian::little, "the codec copies native integers");

class Writer {
 public:
  template <std::integral T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_raw(std::string_view bytes) { bytes_.append(bytes); }
  // A u32 length, then the bytes.
  void put_string(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_raw(text);
  }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// A message with its size in front, for streams.
template <std::unsigned_integral Size>
std::string framed(const Writer& message) {
  Writer out;
  out.put(static_cast<Size>(message.bytes().size()));
  out.put_raw(message.bytes());
  return out.take();
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <std::integral T>
  T get() {
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  std::string_view get_raw(std::size_t size) { return take(size) ? taken_ : std::string_view(); }
  // A string whose length prefix is at most max_size.
  std::string_view get_string(std::size_t max_size) {
    const auto size = get<std::uint32_t>();
    if (size > max_size) ok_ = false;
    return ok_ ? get_raw(size) : std::string_view();
  }

  bool ok() const { return ok_; }
  // All bytes are read and no field was short.
  bool done() const { return ok_ && rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  bool take(std::size_t size) {
    if (!ok_ || size > rest_.size()) return ok_ = false;
    taken_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  std::string_view taken_;
  bool ok_ = true;
};

}  // namespace dlaunch

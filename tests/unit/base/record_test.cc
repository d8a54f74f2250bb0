#include "base/record.h"

#include <doctest/doctest.h>

#include "base/record_shape.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

enum class Colour { red, green, blue };

struct Inner {
  int number = 0;
  std::vector<std::string> names;
  bool operator==(const Inner&) const = default;
};

struct Outer {
  std::int64_t large = 0;
  bool flag = false;
  double half = 0;
  Colour colour = Colour::red;
  Inner inner;
  std::optional<Inner> perhaps;
  std::map<int, std::string> by_number;
  Duration took{};
  TimePoint at{};
  bool operator==(const Outer&) const = default;
};

struct Empty {};

const Outer kOuter{
    -5, true, 0.5, Colour::blue, {7, {"a", ""}}, Inner{8, {}}, {{1, "x"}, {-2, "y"}}, 3min, {}};

}  // namespace

template <>
inline constexpr Colour dlaunch::kLastOf<Colour> = Colour::green;

TEST_CASE("a record is read as it was written, and its enums must be valid") {
  RecordWriter out({}, TimePoint(10s));
  Outer sent = kOuter;
  sent.at = TimePoint(12s);
  out(sent);
  RecordReader in(out.bytes(), {}, TimePoint(100s));
  Outer got;
  in(got);
  CHECK(in.done());
  sent.at = TimePoint(102s);  // as long after the reader's origin
  sent.colour = Colour::green;
  CHECK(got == sent);
}

TEST_CASE("a record is its members and nothing else") {
  CHECK(encode_record(Empty{}).empty());
  CHECK(encode_record(Inner{1, {"ab"}}) == std::string("\1\0\0\0"
                                                       "\1\0\0\0"
                                                       "\2\0\0\0"
                                                       "ab",
                                                       14));
}

TEST_CASE("short or long input, and additional bytes, are refused") {
  const std::string whole = encode_record(kOuter);
  Outer got;
  CHECK(decode_record(whole, got));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Outer unused;
    CHECK_FALSE(decode_record(std::string_view(whole).substr(0, size), unused));
  }
  CHECK_FALSE(decode_record(whole + "x", got));
  Inner inner;
  const std::string three = encode_record(Inner{1, {"aa", "b", "c"}});
  CHECK_FALSE(decode_record(three, inner, {.items = 2}));
  CHECK_FALSE(decode_record(three, inner, {.text = 1}));
  // A writer with limits cuts.
  CHECK(decode_record(encode_record(Inner{1, {"aa", "b", "c"}}, {.text = 1, .items = 2}), inner));
  CHECK(inner == Inner{1, {"a", "b"}});
}

TEST_CASE("texts for a terminal are escaped as they are read") {
  Inner inner;
  REQUIRE(decode_record(encode_record(Inner{1, {"a\x1b[2J"}}), inner, {.escapes = true}));
  CHECK(inner.names[0].find('\x1b') == std::string::npos);
}

TEST_CASE("times that would overflow are refused") {
  struct Times {
    Duration took{};
    TimePoint at{};
  };
  Times got;
  REQUIRE(decode_record(encode_record(Times{Duration::max(), TimePoint::max()}), got));
  CHECK(got.took == 365 * 24h);
  CHECK(got.at == TimePoint(365 * 24h));
  REQUIRE(decode_record(encode_record(Times{-1ns, TimePoint{}}), got));
  CHECK(got.took == Duration::zero());
}

TEST_CASE("a message is the number of its kind, followed by its record") {
  using Message = std::variant<Empty, Inner>;
  RecordWriter out;
  write_message(out, Message(Inner{3, {}}));
  CHECK(out.bytes()[0] == 1);
  RecordReader in(out.bytes());
  Message got;
  CHECK(read_message(in, got));
  CHECK(in.done());
  CHECK(std::get<Inner>(got).number == 3);
  RecordReader unknown("\2");
  CHECK_FALSE(read_message(unknown, got));
}

namespace {

enum class Shade { light, dark };

template <class... Members>
struct Of;
template <class A>
struct Of<A> {
  A a{};
};
template <class A, class B>
struct Of<A, B> {
  A a{};
  B b{};
};

}  // namespace

template <>
inline constexpr Shade dlaunch::kLastOf<Shade> = Shade::dark;

TEST_CASE("records that look different on the wire have different shapes") {
  const std::vector<std::uint64_t> shapes = {
      shape_of<Empty>(),
      shape_of<Of<int>>(),
      shape_of<Of<unsigned>>(),
      shape_of<Of<std::int64_t>>(),
      shape_of<Of<bool>>(),
      shape_of<Of<double>>(),
      shape_of<Of<std::string>>(),
      shape_of<Of<Duration>>(),
      shape_of<Of<TimePoint>>(),
      shape_of<Of<Colour>>(),
      shape_of<Of<Empty>>(),
      shape_of<Of<std::optional<int>>>(),
      shape_of<Of<std::vector<int>>>(),
      shape_of<Of<std::vector<bool>>>(),
      shape_of<Of<std::map<int, int>>>(),
      shape_of<Of<int, int>>(),
      shape_of<Of<int, bool>>(),
      shape_of<Of<bool, int>>(),
      shape_of<Of<Of<int>, bool>>(),
      shape_of<Of<Of<int, bool>>>(),
      shape_of<std::variant<Empty, Inner>>(),
      shape_of<std::variant<Empty, Inner, Outer>>(),
  };
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(i);
      CAPTURE(j);
      CHECK(shapes[i] != shapes[j]);
    }
  }
  // Names do not count, and the same numbers of values of an enum do.
  CHECK(shape_of<Of<int, std::vector<std::string>>>() == shape_of<Inner>());
  CHECK(shape_of<Of<Colour>>() == shape_of<Of<Shade>>());
}

#include "base/units.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/text.h"

namespace dlaunch {
namespace {

Error bad(std::string_view text, std::string_view wanted) {
  return Error{.code = Errc::usage, .what = fmt::format("'{}' is not {}", text, wanted)};
}

// Splits "1.5s" into 1.5 and "s". False: it does not begin with a number.
bool split_number(std::string_view text, double& number, std::string& unit) {
  const auto [end, err] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (err != std::errc() || !std::isfinite(number) || number < 0) return false;
  unit = lower_case({end, text.data() + text.size()});
  return true;
}

}  // namespace

Result<Duration> parse_duration(std::string_view text) {
  constexpr auto kWanted = "a duration such as 10, 250ms, 1.5s, 2m, 1h";
  double number = 0;
  std::string unit;
  if (!split_number(text, number, unit)) return bad(text, kWanted);
  double seconds = 0;
  if (unit.empty() || unit == "s")
    seconds = 1;
  else if (unit == "us")
    seconds = 1e-6;
  else if (unit == "ms")
    seconds = 1e-3;
  else if (unit == "m" || unit == "min")
    seconds = 60;
  else if (unit == "h")
    seconds = 3600;
  else if (unit == "d")
    seconds = 86400;
  else
    return bad(text, kWanted);
  constexpr double kLongest = 100.0 * 365 * 86400;  // a century: later sums do not overflow
  if (number * seconds > kLongest) return bad(text, "a duration under 100 years");
  const Duration rounded(static_cast<std::int64_t>(std::llround(number * seconds * 1e9)));
  return number > 0 ? std::max(rounded, Duration(1)) : rounded;  // 0 often has its own meaning
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr auto kWanted = "a size such as 8, 4K, 256M, 1G";
  double number = 0;
  std::string unit;
  if (!split_number(text, number, unit)) return bad(text, kWanted);
  int shift = 0;
  if (!unit.empty() && unit != "b") {
    const auto at = std::string_view("kmgt").find(unit[0]);
    const auto rest = unit.substr(1);
    if (at == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
      return bad(text, kWanted);
    }
    shift = 10 * (static_cast<int>(at) + 1);
  }
  const double bytes = std::ldexp(number, shift);
  if (bytes > 0x1p60) return bad(text, "a size under 1 EiB");
  if (bytes != std::floor(bytes)) return bad(text, "a whole number of bytes");
  return static_cast<std::uint64_t>(bytes);
}

Result<int> parse_int(std::string_view text, int low, int high, std::string_view name) {
  int value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (err != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return Error{
        .code = Errc::usage,
        .what = fmt::format("{}: '{}' is not a whole number from {} to {}", name, text, low, high)};
  }
  return value;
}

Result<double> parse_number(std::string_view text, double low, double high, std::string_view name) {
  double value = 0;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (err != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
    return Error{
        .code = Errc::usage,
        .what = fmt::format("{}: '{}' is not a number from {} to {}", name, text, low, high)};
  }
  return value;
}

std::string format_duration(Duration duration) {
  const double s = to_seconds(duration);
  const double magnitude = std::fabs(s);
  if (magnitude >= 1 || magnitude == 0) return fmt::format("{:.4g} s", s);
  if (magnitude >= 1e-3) return fmt::format("{:.4g} ms", s * 1e3);
  return fmt::format("{:.4g} us", s * 1e6);
}

std::string format_seconds(double seconds) {
  return format_duration(Duration(static_cast<std::int64_t>(seconds * 1e9)));
}

std::string format_rate(double bytes_per_second) {
  return bytes_per_second < 0.9995e9 ? fmt::format("{:.3g} MB/s", bytes_per_second / 1e6)
                                     : fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
}

}  // namespace dlaunch

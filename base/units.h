// Durations and byte sizes in users' notation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

// "10" (seconds), "250ms", "1.5s", "2m", "1h", "1d". Not negative.
Result<Duration> parse_duration(std::string_view text);

// "8", "4K", "256M", "1G", "4KiB", "1MB": powers of 1024 as in nccl-tests; the letter case does not
// matter.
Result<std::uint64_t> parse_bytes(std::string_view text);

// A whole number within [low, high]; errors call it `name` ("--nproc").
Result<int> parse_int(std::string_view text, int low, int high, std::string_view name);

// A number within [low, high].
Result<double> parse_number(std::string_view text, double low, double high, std::string_view name);

// The shortest readable form: "1.5 s", "250 ms", "3.2 us".
std::string format_duration(Duration duration);
std::string format_seconds(double seconds);

// For data, in powers of 1000 as links use them: "117 MB/s", "12.5 GB/s".
std::string format_rate(double bytes_per_second);

}  // namespace dlaunch

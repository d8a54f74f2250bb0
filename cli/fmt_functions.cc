// The functions of libfmt that formatting calls, compiled into the launcher. With them, and with
// the C++ library linked in, a copied dlaunch runs on any host that has a C library. Of fmt 9; see
// cli/meson.build.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace {

// Naming them makes the compiler emit them.
[[gnu::used]] std::string (*const vformat)(fmt::string_view, fmt::format_args) = fmt::vformat;
[[gnu::used]] bool (*const is_printable)(std::uint32_t) = fmt::detail::is_printable;
[[gnu::used]] constexpr auto kSeparator = fmt::detail::thousands_sep_impl<char>;
[[gnu::used]] constexpr auto kPoint = fmt::detail::decimal_point_impl<char>;
[[gnu::used]] constexpr auto kFormatError = fmt::detail::throw_format_error;
[[gnu::used]] constexpr auto kAssertFail = fmt::detail::assert_fail;

}  // namespace

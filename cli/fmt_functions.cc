// The functions of libfmt that formatting calls, as the launcher carries them: with them, and with
// the C++ library linked in, it finds what it needs on any host that has a C library, which is what
// a host can be counted on to have that a dlaunch is copied to. Of fmt 9; see cli/meson.build.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace {

// Naming them has the compiler write them out.
[[gnu::used]] std::string (*const vformat)(fmt::string_view, fmt::format_args) = fmt::vformat;
[[gnu::used]] bool (*const is_printable)(std::uint32_t) = fmt::detail::is_printable;
[[gnu::used]] constexpr auto kSeparator = fmt::detail::thousands_sep_impl<char>;
[[gnu::used]] constexpr auto kFormatError = fmt::detail::throw_format_error;
[[gnu::used]] constexpr auto kAssertFail = fmt::detail::assert_fail;

}  // namespace

#include "cli/report/report_page.h"

#include <string_view>

#include "cli/report/page_parts.h"

namespace dlaunch {
namespace {

constexpr std::string_view kDataMark = "@DATA@";
constexpr std::string_view kScriptMark = "@SCRIPT@";

}  // namespace

std::string report_page(const std::string& data) {
  const std::string_view page = kPageHtml;
  const std::size_t at_data = page.find(kDataMark);
  const std::size_t at_script = page.find(kScriptMark);
  std::string out;
  out.reserve(page.size() + kPageScript.size() + data.size());
  out += page.substr(0, at_data);
  out += data;
  out += page.substr(at_data + kDataMark.size(), at_script - at_data - kDataMark.size());
  out += kPageScript;
  out += page.substr(at_script + kScriptMark.size());
  return out;
}

}  // namespace dlaunch

#include "launcher/lead/report/last_words.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/output/traceback_watch.h"

namespace dlaunch {
namespace {

using Lines = std::vector<std::string>;

constexpr std::ptrdiff_t kShownTail = 10;
constexpr std::ptrdiff_t kShownTraceback = 12, kShownOfChain = 6;
constexpr std::size_t kMaxBytes = 240;  // of a quoted line

// Removes control sequences and characters, which could repaint the terminal. Limits the length
// without cutting a UTF-8 character.
std::string printable(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {
      for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~'); ++i) {
      }
    } else if (c == 0xc2 && i + 1 < line.size() && (line[i + 1] & 0xe0) == 0x80) {
      ++i;  // U+0080 to U+009F
    } else if (c == '\t' || (c >= 0x20 && c != 0x7f)) {
      out += line[i];
    }
  }
  if (out.size() <= kMaxBytes) return out;
  return out.substr(0, cut_before(out, kMaxBytes)) + " …";
}

Lines split(const std::string& text) {
  Lines lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Lines without_blank_end(Lines lines) {
  auto blank = [](const std::string& line) {
    return line.find_first_not_of(" \t\r") == std::string::npos;
  };
  while (!lines.empty() && blank(lines.back())) lines.pop_back();
  return lines;
}

// Quotes the last lines, indented, and the number of lines before them.
void quote(Lines& out, const Lines& quoted, std::ptrdiff_t most) {
  const auto from = static_cast<std::size_t>(std::max(std::ssize(quoted) - most, std::ptrdiff_t{}));
  if (from > 0) out.push_back(fmt::format("    … {} earlier lines", from));
  for (std::size_t i = from; i < quoted.size(); ++i) out.push_back("    " + printable(quoted[i]));
}

// The message in a TORCHELASTIC_ERROR_FILE: {"message": {"message": …, "extraInfo":
// {"py_callstack": …}}} or {"message": "…"}. Empty if it is neither.
Lines python_error(const std::string& file) {
  const auto root = nlohmann::json::parse(file, nullptr, false);
  if (!root.is_object() || !root.contains("message")) return {};
  const auto& message = root["message"];
  if (message.is_string()) return split(message.get<std::string>());
  if (!message.is_object()) return {};
  auto text_of = [](const nlohmann::json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto extra = message.find("extraInfo");
  Lines lines;
  if (extra != message.end()) lines = split(text_of(*extra, "py_callstack"));
  return lines.empty() ? split(text_of(message, "message")) : lines;
}

// The lines that the report would quote from it.
Lines shown_tail(const Lines& tail) {
  return {tail.end() - std::min(std::ssize(tail), kShownTail), tail.end()};
}

// Whether these lines show the exception, of a chain also its first one. Later lines may be mere
// noise.
bool shows(const Lines& shown, const Traceback& traceback) {
  if (traceback.first.empty()) {
    return std::ranges::find(shown, traceback.lines.front()) != shown.end();
  }
  const auto chain =
      std::ranges::find_if(shown, [](const auto& line) { return is_chain_line(line); });
  return std::count_if(chain, shown.end(), [](const auto& line) { return is_chain_line(line); }) ==
             traceback.between + 1 &&
         std::any_of(shown.begin(), chain, [&](const std::string& line) {
           return line.ends_with(traceback.first_error);
         });
}

// Of a chain the first exception is the cause, and the last one ended the process.
void quote_chain(Lines& out, const Traceback& traceback, const Lines& last, bool stands_above) {
  out.push_back("  its first exception, which a later one hides:");
  quote(out, traceback.first, kShownOfChain);
  const std::string which = traceback.between == 0
                                ? "raised while it handled that one or because of it"
                                : fmt::format("after {} other{} in between", traceback.between,
                                              traceback.between == 1 ? "" : "s");
  if (stands_above) {
    out.push_back(fmt::format("  its last exception, {}, stands in the lines above", which));
  } else {
    out.push_back(fmt::format("  its last exception, {}:", which));
    quote(out, last, kShownOfChain);
  }
}

// With lines that may belong to its message.
Lines whole(const Traceback& traceback) {
  Lines lines = traceback.lines;
  lines.insert(lines.end(), traceback.behind.begin(), traceback.behind.end());
  return lines;
}

std::optional<Traceback> parse(const Lines& lines) {
  TracebackWatch watch;
  for (const auto& line : lines) watch.feed(TimePoint(), line + "\n");
  return watch.last();
}

}  // namespace

void add_last_words(Lines& out, const WorkerEnd& root, bool by_traceback,
                    const ShownLast& shown_last) {
  const Lines error = without_blank_end(python_error(root.error_file));
  const Lines tail = without_blank_end(root.stderr_tail);
  const Lines shown = shown_tail(tail);
  const bool stands_above =
      shown_last && !tail.empty() && shown_last(root.rank, shown_tail(root.stderr_tail));
  const auto traceback = !error.empty() ? parse(error)
                         : by_traceback ? root.traceback
                                        : std::nullopt;
  const bool exists = traceback && !traceback->lines.empty();
  const Lines last = exists ? whole(*traceback) : Lines();
  if (exists && !traceback->first.empty() && (!error.empty() || !shows(shown, *traceback))) {
    quote_chain(out, *traceback, last, stands_above && error.empty());
  } else if (!error.empty()) {
    out.push_back("  its error:");
    quote(out, error, kShownTraceback);
  } else if (exists && !shows(shown, *traceback)) {
    out.push_back("  its last traceback, before other lines:");
    quote(out, last, kShownTraceback);
  } else if (stands_above) {
    out.push_back("  its stderr ends with the lines above");
  } else if (!tail.empty()) {
    out.push_back("  last lines of its stderr:");
    quote(out, tail, kShownTail);
  }
  if (!tail.empty() && !root.stderr_log.empty())
    out.push_back("  all of its stderr: " + escaped(root.stderr_log));
}

void add_traceback(std::vector<std::string>& out, const Traceback& traceback) {
  if (!traceback.first.empty()) return quote_chain(out, traceback, whole(traceback), false);
  quote(out, whole(traceback), kShownTail);
}

}  // namespace dlaunch

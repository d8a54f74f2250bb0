#include "cli/segments.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/rank_set.h"
#include "base/text.h"
#include "base/units.h"
#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

constexpr std::string_view kOfASegment[] = {"np", "nproc", "env", "chdir", "module", "no-python"};

// MPICH's -genv and Open MPI's -gmca hold for all programs.
constexpr std::string_view kForAll[] = {"genv", "gmca", "gomca", "gpmixmca"};

bool is_of_a_segment(const GivenOption& given) {
  const auto spelled = std::string_view(given.spelled).substr(given.spelled.find_first_not_of('-'));
  return std::find(std::begin(kForAll), std::end(kForAll), spelled) == std::end(kForAll) &&
         std::find(std::begin(kOfASegment), std::end(kOfASegment), given.row->name) !=
             std::end(kOfASegment);
}

Result<void> set_option(Segment& segment, const GivenOption& given) {
  const std::string_view name = given.row->name;
  const Text text{given.value, given.spelled, true};
  if (name == "np") {
    segment.np = text;
  } else if (name == "nproc") {
    segment.nproc = text;
  } else if (name == "chdir") {
    segment.chdir = text;
  } else if (name == "env") {
    segment.env.values.push_back(given.value);
    segment.env.spelled.push_back(given.spelled);
  } else if (!given.value.empty()) {
    return usage_error(fmt::format("{} takes no value", given.spelled));
  } else {
    (name == "module" ? segment.module : segment.no_python) = {true, given.spelled, true};
  }
  return {};
}

constexpr std::string_view kAfterDashes = "; to pass a ':' to a program, put -- before the program";

// Reads the words of one segment: its options, and its program. Remarks on its options go to
// `told`.
Result<Segment> read_segment(const std::vector<std::string>& words, ScannedLine& told) {
  auto line = scan_line(words);
  if (!line) return line.error();
  told.notes.insert(told.notes.end(), line->notes.begin(), line->notes.end());
  told.warnings.insert(told.warnings.end(), line->warnings.begin(), line->warnings.end());
  Segment segment;
  for (const GivenOption& given : line->options) {
    if (!is_of_a_segment(given)) {
      return usage_error(fmt::format("{} holds for the whole job: give it before the first program",
                                     given.spelled));
    }
    if (auto done = set_option(segment, given); !done) return done.error();
  }
  segment.program = std::move(line->program);
  if (segment.program.empty() || segment.program[0].empty()) {
    return usage_error("it names no program");
  }
  return segment;
}

// The scanner reports each invalid option in a line of its own.
std::string in_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "; " : std::string(1, c);
  return out;
}

Error in_segment(std::size_t number, Error error) {
  error.what = fmt::format("program {}: {}", number, in_one_line(error.what));
  return error;
}

Error in_line(const std::string& name, int line, const std::string& what) {
  return protocol_error(fmt::format("{}:{}: {}", name, line, in_one_line(what)));
}

// The words of a line as in a shell, without a comment at its end; nullopt: an unclosed quote.
std::optional<std::vector<std::string>> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool more = i + 1 < line.size();
    if (quote == '\'' ? c == '\'' : quote == '"' && c == '"') {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (c == '\\' && more &&
               (quote == 0 || (quote == '"' && (line[i + 1] == '"' || line[i + 1] == '\\')))) {
      word += line[++i];
      in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\r')) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else if (quote == 0 && c == '#' && !in_word) {
      break;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) return std::nullopt;
  if (in_word) words.push_back(std::move(word));
  return words;
}

struct NumberedLine {
  int number;
  std::vector<std::string> words;
};

// The lines with words. joined: a backslash at the end of a line joins it with the next.
Result<std::vector<NumberedLine>> lines_of(std::string_view text, const std::string& name,
                                           bool joined) {
  if (text.find('\0') != text.npos) return protocol_error(name + ": it is not a text file");
  std::vector<NumberedLine> lines;
  std::string whole;
  int number = 0, first = 1;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    whole += text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (joined && whole.ends_with('\\') && at < text.size()) {
      whole.back() = ' ';
      continue;
    }
    auto words = shell_words(whole);
    if (!words) return in_line(name, first, "a quote has no end");
    if (!words->empty()) lines.push_back({first, std::move(*words)});
    whole.clear();
    first = number + 1;
  }
  if (lines.empty()) return protocol_error(name + ": it names no program");
  return lines;
}

// srun's %t and %o in our words.
std::string with_our_macros(const std::string& word) {
  std::string out;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char next = i + 1 < word.size() ? word[i + 1] : ' ';
    if (word[i] != '%' || (next != 't' && next != 'o')) {
      out += word[i];
      continue;
    }
    out += next == 't' ? "${rank}" : "${program_rank}";
    ++i;
  }
  return out;
}

}  // namespace

Result<std::vector<Segment>> take_segments(ScannedLine& line) {
  const auto colon = std::find(line.program.begin(), line.program.end(), ":");
  if (line.by_dashes || colon == line.program.end()) return std::vector<Segment>();
  std::vector<Segment> segments(1);
  std::vector<GivenOption> of_the_job;
  for (GivenOption& given : line.options) {
    if (!is_of_a_segment(given)) {
      of_the_job.push_back(std::move(given));
    } else if (auto done = set_option(segments[0], given); !done) {
      return done.error();
    }
  }
  segments[0].program.assign(line.program.begin(), colon);
  std::vector<std::string> rest(colon + 1, line.program.end());
  if (segments[0].program.empty())
    return usage_error(fmt::format("':' has no program before it{}", kAfterDashes));
  while (true) {
    if (rest.empty())
      return usage_error(fmt::format("':' has no program after it{}", kAfterDashes));
    // All words after "--" are one program's, also a ':'.
    const auto dashes = std::find(rest.begin(), rest.end(), "--");
    const auto end = std::find(rest.begin(), dashes, ":");
    const bool last = end == dashes;
    auto segment = read_segment(last ? rest : std::vector<std::string>(rest.begin(), end), line);
    if (!segment) return in_segment(segments.size(), segment.error());
    segments.push_back(std::move(*segment));
    if (last) break;
    rest.erase(rest.begin(), end + 1);
  }
  line.options = std::move(of_the_job);
  line.program.clear();
  return segments;
}

Result<std::vector<Segment>> parse_app_file(std::string_view text, const std::string& name) {
  auto lines = lines_of(text, name, false);
  if (!lines) return lines.error();
  std::vector<Segment> segments;
  ScannedLine told;
  for (const auto& [number, words] : *lines) {
    auto segment = read_segment(words, told);
    if (!segment) return in_line(name, number, segment.error().what);
    if (auto count = count_of(*segment); !count) return in_line(name, number, count.error().what);
    segments.push_back(std::move(*segment));
  }
  return segments;
}

Result<std::vector<Segment>> parse_multi_prog(std::string_view text, const std::string& name) {
  auto lines = lines_of(text, name, true);
  if (!lines) return lines.error();
  std::vector<Segment> segments;
  RankSet taken;
  bool rest = false;
  for (const auto& [number, words] : *lines) {
    Segment segment;
    segment.ranks = words[0];
    if (words.size() < 2 || words[1].empty()) {
      return in_line(name, number, "a line is 'RANKS PROGRAM [ARGUMENT ...]'");
    }
    if (words[0] == "*") {
      if (std::exchange(rest, true)) return in_line(name, number, "'*' is given twice");
    } else {
      auto ranks = parse_rank_set(words[0], kMaxWorkers);
      if (!ranks) return in_line(name, number, ranks.error().what);
      for (const int rank : *ranks) {
        if (!taken.insert(rank).second) {
          return in_line(name, number, fmt::format("rank {} has a program already", rank));
        }
      }
    }
    for (std::size_t i = 1; i < words.size(); ++i) {
      segment.program.push_back(with_our_macros(words[i]));
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

Result<int> count_of(const Segment& segment) {
  if (!segment.ranks.empty()) return 0;
  const Text& text = segment.np ? segment.np : segment.nproc;
  if (!text) return 1;
  auto number = parse_int(*text, 1, kMaxWorkers, text.source);
  if (number || segment.np) return number;
  return usage_error(number.error().what + "; each program has its own number of workers: say -n");
}

std::vector<std::string> words_of(const std::vector<Segment>& segments) {
  std::vector<std::string> words;
  for (const Segment& segment : segments) {
    if (&segment != &segments.front()) words.emplace_back(":");
    const auto count = count_of(segment);
    words.insert(words.end(), {"-n", std::to_string(count ? *count : 1)});
    for (const auto& item : segment.env.values) words.insert(words.end(), {"--env", item});
    if (segment.chdir) words.insert(words.end(), {"--chdir", *segment.chdir});
    if (segment.module) words.emplace_back("--module");
    if (segment.no_python) words.emplace_back("--no-python");
    if (&segment == &segments.back()) words.emplace_back("--");
    words.insert(words.end(), segment.program.begin(), segment.program.end());
  }
  return words;
}

}  // namespace dlaunch

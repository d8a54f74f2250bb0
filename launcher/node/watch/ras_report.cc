#include "launcher/node/watch/ras_report.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "base/text.h"

namespace dlaunch {
namespace {

using RasWords = std::vector<std::string_view>;

// "": there is none.
std::string_view word_at(const RasWords& words, std::size_t at) {
  return at < words.size() ? words[at] : std::string_view();
}

// 0: it is no such number.
template <class Number>
Number positive(std::string_view text, int base = 10) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

// "launched up to operation 41 …", "not launched any operations …"
std::optional<std::uint64_t> launched(const RasWords& words, std::size_t at) {
  if (word_at(words, at) == "not" && word_at(words, at + 1) == "launched") return 0;
  if (word_at(words, at) != "launched" || word_at(words, at + 3) != "operation")
    return std::nullopt;
  return positive<std::uint64_t>(word_at(words, at + 4));
}

// "1234 on node 10.0.0.7"
struct RasProcess {
  pid_t pid = 0;
  std::string_view host;
};
RasProcess process(const RasWords& words, std::size_t at) {
  return {.pid = positive<pid_t>(word_at(words, at)), .host = word_at(words, at + 3)};
}

class RasReader {
 public:
  explicit RasReader(const IsOurProcess& is_ours) : is_ours_(is_ours) {}

  void read(std::string_view line);
  std::optional<RasReport> take();

 private:
  enum class Part { other, table, silent, counts };

  void title(const RasWords& words);
  void count(const RasWords& words);
  void end_counts();
  bool is_known(const RasProcess& process) const {
    return process.pid > 0 && is_ours_(process.host, process.pid);
  }

  const IsOurProcess& is_ours_;
  RasReport report_;
  bool whole_ = false;
  Part part_ = Part::other;
  std::vector<std::int32_t> sizes_;  // of the communicators in each group; 0: not to be compared
  NcclProgress at_;                  // the communicator and the function of this part
  std::vector<std::pair<pid_t, NcclProgress>> named_;
  std::vector<std::uint64_t> unnamed_;  // the counts of the other ranks
  bool names_follow_ = false;           // those with the last of them
};

void RasReader::read(std::string_view line) {
  const RasWords words = split_words(line, ' ');
  if (line.empty()) {
    end_counts();
    part_ = Part::other;
  } else if (line.starts_with("#")) {
    title(words);
  } else if (line == "Warnings") {
    whole_ = true;  // NCCL sends this part at once, as the last one
  } else if (word_at(words, 0) == "Group") {
    part_ = Part::table;
  } else if (line == "INCOMPLETE" || line == "DEAD") {
    part_ = Part::silent;
  } else if (part_ == Part::table && words.size() >= 8 &&
             words[0] == std::to_string(sizes_.size())) {
    const bool all_there = words[6] == "RUNNING" && words[7] == "MISMATCH";
    sizes_.push_back(all_there ? positive<std::int32_t>(words[4]) : 0);
  } else if (part_ == Part::silent && word_at(words, 0) == "Process") {
    const RasProcess its = process(words, 1);
    if (is_known(its)) report_.silent.insert(its.pid);
  } else if (line == "  Communicator ranks have different status") {
    end_counts();
    part_ = Part::other;
    at_ = {};  // some have left it
  } else if (line.starts_with("  Communicator ranks have different ") && at_.comm != 0 &&
             word_at(words, 5) == "operation") {
    end_counts();
    part_ = Part::counts;
    at_.function = word_at(words, 4);
  } else if (part_ == Part::counts) {
    count(words);
  }
}

// "#0-1 (27a079b828ff1a75) MISMATCH"
void RasReader::title(const RasWords& words) {
  end_counts();
  part_ = Part::other;
  at_ = {};
  auto hash = word_at(words, 1);
  if (word_at(words, 2) != "MISMATCH" || !hash.starts_with("(") || !hash.ends_with(")")) return;
  hash.remove_prefix(1);
  hash.remove_suffix(1);
  const auto group = positive<std::size_t>(words[0].substr(1, words[0].find('-') - 1));
  if (group >= sizes_.size() || sizes_[group] == 0) return;
  at_.comm = positive<std::uint64_t>(hash, 16);
  at_.ranks = sizes_[group];
}

// "3 ranks have launched up to operation 41" for all of them, or before the names of these ranks
// without their count; "Rank 7 has launched up to operation 41 -- …" for one.
void RasReader::count(const RasWords& words) {
  if (word_at(words, 1) == "ranks") {
    if (const auto all = launched(words, 3)) {
      unnamed_.push_back(*all);
      names_follow_ = true;
    }
    return;
  }
  if (word_at(words, 0) != "Rank") return;
  at_.rank = positive<std::int32_t>(word_at(words, 1));
  if (word_at(words, 2) != "--") {
    names_follow_ = false;
    const auto own = launched(words, 3);
    if (!own) return;
    at_.enqueued = *own;
  } else if (names_follow_) {
    names_follow_ = false;
    at_.enqueued = unnamed_.back();
    unnamed_.pop_back();
  }
  if (words.size() < 5) return;
  const RasProcess its = process(words, words.size() - 4);
  if (is_known(its)) named_.emplace_back(its.pid, at_);
}

void RasReader::end_counts() {
  for (auto& [pid, progress] : named_) {
    if (unnamed_.size() == 1) progress.others = unnamed_.front();
    report_.named[pid].push_back(std::move(progress));
  }
  named_.clear();
  unnamed_.clear();
  names_follow_ = false;
}

std::optional<RasReport> RasReader::take() {
  end_counts();
  return whole_ ? std::optional(std::move(report_)) : std::nullopt;
}

}  // namespace

std::optional<RasReport> read_ras_report(std::string_view text, const IsOurProcess& is_ours) {
  if (!text.starts_with("SERVER PROTOCOL ")) return std::nullopt;
  RasReader reader(is_ours);
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    reader.read(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.take();
}

}  // namespace dlaunch

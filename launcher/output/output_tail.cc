#include "launcher/output/output_tail.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dlaunch {

// -- OutputTail

void OutputTail::append(OutputStream stream, std::string_view bytes) {
  if (bytes.size() > kKept) {
    begin_ += kept_ + bytes.size() - kKept;
    kept_ = 0;
    pieces_.clear();
    bytes.remove_prefix(bytes.size() - kKept);
  }
  kept_ += bytes.size();
  while (!bytes.empty()) {
    const bool fits =
        !pieces_.empty() && pieces_.back().stream == stream && pieces_.back().bytes.size() < kPiece;
    if (!fits) pieces_.push_back({stream, {}});
    std::string& last = pieces_.back().bytes;
    const std::size_t more = std::min(bytes.size(), kPiece - last.size());
    last.append(bytes.substr(0, more));
    bytes.remove_prefix(more);
  }
  for (; kept_ > kKept; pieces_.pop_front()) {
    begin_ += pieces_.front().bytes.size();
    kept_ -= pieces_.front().bytes.size();
  }
}

void OutputTail::end() {
  for (const OutputStream stream : kOutputStreams) {
    const auto last = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const Piece& piece) {
      return piece.stream == stream && !piece.bytes.empty();
    });
    if (last != pieces_.rend() && last->bytes.back() != '\n') append(stream, "\n");
  }
}

// Of a progress bar only the last state is a line.
std::vector<OutputTail::Line> OutputTail::lines_after(std::uint64_t position) const {
  std::vector<Line> lines;
  std::array<std::string, 2> begun;
  // The first line of a stream whose beginning is no longer kept would be a part of one.
  std::array<bool, 2> cut = {begin_ > 0, begin_ > 0};
  std::uint64_t at = begin_;
  for (const Piece& piece : pieces_) {
    const auto stream = static_cast<std::size_t>(piece.stream);
    for (std::string_view rest = piece.bytes; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const bool ends = end < rest.size();
      begun[stream] += rest.substr(0, end);
      at += end + (ends ? 1 : 0);
      rest.remove_prefix(end + (ends ? 1 : 0));
      if (!ends) continue;
      std::string line = std::exchange(begun[stream], {});
      if (std::exchange(cut[stream], false) || at <= position) continue;
      if (line.ends_with('\r')) line.pop_back();
      line.erase(0, line.rfind('\r') + 1);
      line.resize(std::min(line.size(), kMostOfLine));
      lines.push_back({piece.stream, at, std::move(line)});
    }
  }
  return lines;
}

// -- OutputTails

void OutputTails::append(TimePoint now, int slot, OutputStream stream, std::string_view bytes) {
  tails_[slot].append(stream, bytes);
  const auto asked = asked_.find(slot);
  if (asked != asked_.end() && !asked->second.due) asked->second.due = now + kTogether;
}

void OutputTails::end(TimePoint now, int slot) {
  tails_[slot].end();
  const auto asked = asked_.find(slot);
  if (asked != asked_.end() && now < asked->second.until) pass_on(slot, asked->second);
}

void OutputTails::ask(TimePoint now, int slot, Duration lasts, bool again) {
  const auto [it, is_new] = asked_.try_emplace(slot);
  Asked& asked = it->second;
  asked.until = now + lasts;
  if (again && !is_new) return;
  asked.told = again ? tails_[slot].position() : 0;
  if (!again) pass_on(slot, asked);
}

void OutputTails::pass_on(int slot, Asked& asked) {
  const OutputTail& tail = tails_[slot];
  const std::uint64_t lost = asked.told > 0 ? tail.lost_after(asked.told) : 0;
  tell_(slot, lost, tail.lines_after(asked.told));
  asked.told = tail.position();
  asked.due.reset();
}

std::optional<TimePoint> OutputTails::deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [slot, asked] : asked_) {
    next = std::min(next.value_or(kNever), asked.due.value_or(asked.until));
  }
  return next;
}

void OutputTails::on_clock(TimePoint now) {
  for (auto& [slot, asked] : asked_) {
    if (asked.due && *asked.due <= now && now < asked.until) pass_on(slot, asked);
  }
  std::erase_if(asked_, [&](const auto& one) { return one.second.until <= now; });
}

}  // namespace dlaunch

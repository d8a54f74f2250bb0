#include "launcher/wire/stack_groups.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "launcher/wire/stack_lines.h"

namespace dlaunch {
namespace {

// What is known of a worker's main thread.
struct Stack {
  std::string place = kUnknownPlace;
  std::vector<std::string> shown;
  bool known = false, waits = false, stopped = false;
};

std::string without_folder(const std::string& path) { return path.substr(path.rfind('/') + 1); }

using Frames = std::vector<StackFrame>;

bool is_own(const StackFrame& frame) { return frame.kind == CodeKind::program; }
bool is_wait(const StackFrame& frame) {
  return frame.kind == CodeKind::collective || frame.kind == CodeKind::transfer;
}
bool is_telling(const StackFrame& frame) {
  return !frame.function.empty() && frame.kind != CodeKind::interpreter;
}

// The frames within the innermost one of the program; without one, all.
std::span<const StackFrame> called(const Frames& frames) {
  return {frames.begin(), std::ranges::find_if(frames, is_own)};
}

// The call in which the program is: that of a Python library, or else the outermost one that waits
// for other ranks, or else the outermost one that has a name. none: it is in no call.
const StackFrame* call_of(const Frames& frames) {
  const auto inner = called(frames);
  if (inner.empty()) return nullptr;
  const bool has_own = inner.size() < frames.size();
  if (has_own && inner.back().file.ends_with(".py")) return &inner.back();
  const auto last = [&](auto is) -> const StackFrame* {
    const auto found = std::find_if(inner.rbegin(), inner.rend(), is);
    return found == inner.rend() ? nullptr : &*found;
  };
  if (const auto* wait = last([](const auto& f) { return is_wait(f) && is_telling(f); })) {
    return wait;
  }
  if (has_own) return last(is_telling);
  // No frame of the program is known: what Python has called says most, or else the innermost one.
  const auto interpreter = std::ranges::find(inner, CodeKind::interpreter, &StackFrame::kind);
  const bool in_python = interpreter != inner.end() && interpreter != inner.begin();
  if (in_python && is_telling(*std::prev(interpreter))) return &*std::prev(interpreter);
  const auto first = std::ranges::find_if(inner, is_telling);
  return first == inner.end() ? nullptr : &*first;
}

std::string place_of(const Frames& frames) {
  const StackFrame* const call = call_of(frames);
  const auto own = std::ranges::find_if(frames, is_own);
  if (own == frames.end()) return call == nullptr ? kUnknownPlace : "in " + call->function;
  const std::string where =
      own->file.empty() ? "" : fmt::format("{}:{}", without_folder(own->file), own->line);
  if (call != nullptr) {
    return fmt::format("in {}, {}", call->function, where.empty() ? own->function : where);
  }
  return fmt::format("in {}{}{}", own->function, where.empty() ? "" : ", ", where);
}

// "torch/nn/modules/module.py" of a package that is installed
std::string short_file(const std::string& file) {
  constexpr std::string_view kFolder = "-packages/";
  const auto at = file.rfind(kFolder);
  return at == std::string::npos ? file : file.substr(at + kFolder.size());
}

// From the call that place_of() names.
std::vector<std::string> shown(const Frames& frames) {
  const StackFrame* const call = call_of(frames);
  const auto own = std::ranges::find_if(frames, is_own);
  auto from = call == nullptr ? own : frames.begin() + (call - frames.data());
  const auto first = from;
  std::vector<std::string> lines;
  for (; from != frames.end(); ++from) {
    const bool starts_program = from > first && from->kind == CodeKind::c_library;
    if (!is_telling(*from) || starts_program) continue;
    std::string line = from->function;
    if (!from->file.empty()) line += fmt::format(" ({}:{})", short_file(from->file), from->line);
    lines.push_back(std::move(line));
  }
  return lines;
}

bool waits(const std::vector<StackThread>& threads) {
  const auto inner = called(threads.front().frames);
  if (std::ranges::any_of(inner, is_wait)) return true;
  // The call of an accelerator's library may wait for its own threads, and these for other ranks.
  const auto is = [](CodeKind kind) { return [kind](const auto& f) { return f.kind == kind; }; };
  return std::ranges::any_of(inner, is(CodeKind::runtime)) &&
         std::any_of(threads.begin() + 1, threads.end(), [&](const StackThread& thread) {
           return std::ranges::any_of(thread.frames, is(CodeKind::transfer));
         });
}

Stack stack_of(const std::vector<std::string>& lines) {
  const auto threads = parse_stack(lines);
  if (threads.empty()) return {};
  const StackThread& main = threads.front();
  const std::string place = place_of(main.frames);
  return {.place = main.stopped ? "stopped by a signal, " + place : place,
          .shown = shown(main.frames),
          .known = place != kUnknownPlace,
          .waits = !main.stopped && waits(threads),
          .stopped = main.stopped};
}

}  // namespace

std::vector<StackGroup> group_stacks(const RankStacks& stacks) {
  std::vector<StackGroup> groups;
  for (const auto& [rank, lines] : stacks) {
    Stack stack = stack_of(lines);
    const auto group = std::ranges::find_if(groups, [&](const StackGroup& g) {
      return g.known == stack.known && g.place == stack.place && g.frames == stack.shown;
    });
    if (group != groups.end()) {
      group->ranks.insert(rank);
      continue;
    }
    groups.push_back({.ranks = {rank},
                      .place = std::move(stack.place),
                      .frames = std::move(stack.shown),
                      .known = stack.known,
                      .waits = stack.waits,
                      .stopped = stack.stopped});
  }
  std::ranges::stable_sort(groups, [](const StackGroup& a, const StackGroup& b) {
    return a.ranks.size() > b.ranks.size();
  });
  return groups;
}

std::string in_words(const StackGroup& group) {
  return fmt::format("{} {}: {}", group.ranks.size() == 1 ? "rank" : "ranks",
                     format_rank_set(group.ranks), group.place);
}

Suspects find_suspects(const std::vector<StackGroup>& groups, const RankSet& gave_up, int size) {
  RankSet waited = gave_up, idle;
  std::vector<RankSet> elsewhere;  // survivors that wait, by place
  for (const StackGroup& group : groups) {
    RankSet ranks;
    std::set_difference(group.ranks.begin(), group.ranks.end(), gave_up.begin(), gave_up.end(),
                        std::inserter(ranks, ranks.end()));
    if (ranks.empty() || !group.known) continue;
    if (!group.waits) {
      idle.merge(ranks);
    } else {
      waited.insert(ranks.begin(), ranks.end());
      elsewhere.push_back(std::move(ranks));
    }
  }
  if (!idle.empty()) {
    if (idle.size() > waited.size()) return {};
    const bool all = idle.size() + waited.size() == static_cast<std::size_t>(size);
    return {.ranks = idle, .only_one = idle.size() == 1 && all};
  }
  // All wait, as far as is known. The only one that has not given up yet may have come late; else
  // one waits elsewhere.
  if (gave_up.size() >= 2 && gave_up.size() + 1 == static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      if (!gave_up.contains(rank)) return {.ranks = {rank}};
    }
  }
  if (waited.size() < 3) return {};
  if (elsewhere.size() == 2 && elsewhere[0].size() >= 2 && elsewhere[1].size() == 1) {
    return {.ranks = elsewhere[1]};
  }
  return {};
}

}  // namespace dlaunch

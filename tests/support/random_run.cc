#include "random_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

namespace random_ops {
namespace {

constexpr std::size_t kMostPending = 24;
constexpr std::uint64_t kStepsPerLook = 32;  // in which all ranks consult the clock of rank 0 once

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Run::Run(dl_comm* world, const Shape& shape, const Limits& limits,
         std::function<void(const std::string&)> tell, void* shared, std::size_t shared_bytes)
    : program_(shape),
      limits_(limits),
      tell_(std::move(tell)),
      rank_(dl_rank(world)),
      local_(mix(shape.seed + 77) + static_cast<std::uint64_t>(rank_)),
      arena_(shared, shared_bytes) {
  groups_[0] = {world, rank_, dl_size(world)};
}

Run::~Run() {
  for (auto& [id, group] : groups_) {
    if (id != 0) dl_finalize(group.comm);
  }
}

Outcome Run::run() {
  const double end = now() + limits_.seconds;
  while (steps < limits_.steps && outcome_.result == DL_OK) {
    const Step step = program_.next();
    ++steps;
    const bool groups = step.kind == Kind::split || step.kind == Kind::free;
    if (groups_.contains(step.group) && (groups || step.number >= limits_.skip)) take(step);
    if (outcome_.result == DL_OK) end_some();
    if (steps % kStepsPerLook != 0 || outcome_.result != DL_OK) continue;
    std::uint8_t enough = now() > end || (limits_.enough && limits_.enough());
    note(dl_broadcast(groups_[0].comm, &enough, 1, DL_UINT8, 0), 0);
    if (enough != 0) break;
  }
  for (const auto& [id, group] : groups_) {
    if (outcome_.result == DL_OK) end_all_of(id);
  }
  if (outcome_.result != DL_OK) give_up();
  return outcome_;
}

void Run::take(const Step& step) {
  if (limits_.trace) std::fprintf(stderr, "%d: %s\n", rank_, describe(step).c_str());
  switch (step.kind) {
    case Kind::messages:
    case Kind::head_on:
      return letters(step);
    case Kind::recv_any:
      return take_any(step);
    case Kind::split:
      return split(step);
    case Kind::free:
      return leave(step.group);
    case Kind::compare:
      return compare(step);
    default:
      const Group& group = groups_[step.group];
      begin(std::make_unique<Task>(step, group.rank, group.size, arena_, local_), step.later);
  }
}

void Run::letters(const Step& step) {
  const int own = groups_[step.group].rank;
  if (step.kind == Kind::messages) {
    for (std::size_t i = 0; i < step.letters.size(); ++i) {
      if (step.letters[i].from == own) letter(step, i, true);
      if (step.letters[i].to == own) letter(step, i, false);
    }
    return;
  }
  for (const bool sends : {true, false}) {
    for (std::size_t i = 0; i < step.letters.size(); ++i) {
      if ((sends ? step.letters[i].from : step.letters[i].to) == own) letter(step, i, sends);
    }
  }
}

void Run::letter(const Step& step, std::size_t i, bool sends) {
  if (outcome_.result != DL_OK) return;
  const Letter& l = step.letters[i];
  begin(std::make_unique<Task>(step, i, sends, arena_, local_),
        sends ? l.send_later : l.receive_later);
}

// The receiver takes one letter from each of the others, in any order.
void Run::take_any(const Step& step) {
  const Group& group = groups_[step.group];
  const Letter& first = step.letters[0];
  if (first.to != group.rank) return letters(step);
  Tasks tasks;
  for (std::size_t i = 0; i < step.letters.size() && outcome_.result == DL_OK; ++i) {
    tasks.push_back(std::make_unique<Task>(step, i, false, arena_, local_));
    note(tasks.back()->start(group.comm, first.receive_later), step.group);
  }
  for (const auto& task : tasks) note(dl_wait(&task->request), step.group);
  if (outcome_.result != DL_OK) return;
  std::vector<int> sources;
  for (const auto& task : tasks) {
    ++operations;
    sources.push_back(task->source());
    // The values are those of the sender, which may be any rank.
    const auto sender = std::find_if(step.letters.begin(), step.letters.end(),
                                     [&](const auto& l) { return l.from == task->source(); });
    if (sender == step.letters.end()) return complain(*task, "it came from nobody");
    task->come_from(task->source());
    if (const auto what = task->judge(); !what.empty()) complain(*task, what);
  }
  std::sort(sources.begin(), sources.end());
  if (std::adjacent_find(sources.begin(), sources.end()) != sources.end()) {
    complain(*tasks.front(), "two letters of one sender");
  }
}

void Run::split(const Step& step) {
  const Group& parent = groups_[step.group];
  const auto own = static_cast<std::size_t>(parent.rank);
  dl_comm* made = nullptr;
  const auto result = dl_split(parent.comm, step.colors[own], step.keys[own], &made);
  note(result, step.group);
  ++operations;
  if (result != DL_OK) return;
  if (step.colors[own] < 0) {
    if (made != nullptr) tell_(describe(step) + ": a group for a negative color"), ++wrong;
    return;
  }
  const int id = step.made.at(step.colors[own]);
  const auto& members = program_.members(id);
  const auto rank = std::find(members.begin(), members.end(), rank_) - members.begin();
  groups_[id] = {made, static_cast<int>(rank), static_cast<int>(members.size())};
  if (dl_rank(made) != groups_[id].rank || dl_size(made) != groups_[id].size) {
    tell_(describe(step) + ": wrong rank or size"), ++wrong;
  }
}

void Run::leave(int group) {
  end_all_of(group);
  if (outcome_.result != DL_OK) return;
  dl_finalize(groups_[group].comm);
  groups_.erase(group);
}

// All ranks of a group must have the same bits, also if several results would be right.
void Run::compare(const Step& step) {
  end_all_of(step.group);
  if (outcome_.result != DL_OK) return;
  Group& group = groups_[step.group];
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size));
  note(dl_all_gather(group.comm, &group.digest, all.data(), 1, DL_UINT64), step.group);
  ++operations;
  if (outcome_.result != DL_OK) return;
  if (std::any_of(all.begin(), all.end(), [&](auto d) { return d != group.digest; })) {
    tell_(describe(step) + ": the ranks have seen different bits"), ++wrong;
  }
  group.digest = 0;
}

void Run::begin(std::unique_ptr<Task> task, bool later) {
  const Group& group = groups_[task->step().group];
  note(task->start(group.comm, later), task->step().group);
  if (outcome_.result != DL_OK) return;
  if (!later) return finish(std::move(task));
  pending_bytes_ += task->bytes();
  pending_.push_back(std::move(task));
}

// A task that ended well.
void Run::finish(std::unique_ptr<Task> task) {
  ++operations;
  if (const auto what = task->judge(); !what.empty()) complain(*task, what);
  const Step& step = task->step();
  const bool told_to_all = step.kind == Kind::all_reduce || step.kind == Kind::all_reduce_list;
  if (told_to_all && is_float(step.dtype)) groups_[step.group].digest += task->digest();
}

void Run::complain(const Task& task, const std::string& what) {
  ++wrong;
  tell_(task.what() + ": " + what);
}

void Run::note(dl_result result, int group) {
  if (result == DL_OK || outcome_.result != DL_OK) return;
  dl_comm* const comm = groups_[group].comm;
  outcome_ = {.result = result, .group = group, .text = dl_last_error(comm)};
  const int lost = dl_peer_lost(comm);
  if (lost >= 0) outcome_.lost = program_.members(group)[static_cast<std::size_t>(lost)];
  if (on_failure) on_failure(outcome_);
}

Run::Tasks::iterator Run::end_one(Tasks::iterator at) {
  const auto result = dl_wait(&(*at)->request);
  return ended(at, result, (*at)->step().group);
}

// Its request has been freed.
Run::Tasks::iterator Run::ended(Tasks::iterator at, dl_result result, int group) {
  std::unique_ptr<Task> task = std::move(*at);
  const auto next = pending_.erase(at);
  pending_bytes_ -= task->bytes();
  note(result, group);
  if (result == DL_OK) finish(std::move(task));
  return next;
}

// Each rank decides for itself: no other rank depends on the order in which it takes results.
void Run::end_some() {
  while (outcome_.result == DL_OK &&
         (pending_.size() > kMostPending || pending_bytes_ > (std::size_t{32} << 20))) {
    end_one(std::next(pending_.begin(), local_.under(static_cast<int>(pending_.size()))));
  }
  if (pending_.empty() || !local_.chance(300)) return;
  const auto chosen = std::next(pending_.begin(), local_.under(static_cast<int>(pending_.size())));
  if (local_.chance(500)) {
    int done = 0;
    const int group = (*chosen)->step().group;
    const auto result = dl_test(&(*chosen)->request, &done);
    if (done != 0) ended(chosen, result, group);
    return;
  }
  std::vector<Tasks::iterator> same;
  std::vector<dl_request*> requests;
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if ((*it)->step().group != (*chosen)->step().group) continue;
    same.push_back(it);
    requests.push_back((*it)->request);
  }
  std::size_t index = 0;
  const auto result = dl_wait_any(requests.size(), requests.data(), &index);
  ended(same[index], result, (*chosen)->step().group);
}

void Run::end_all_of(int group) {
  for (auto it = pending_.begin(); it != pending_.end() && outcome_.result == DL_OK;) {
    it = (*it)->step().group == group ? end_one(it) : std::next(it);
  }
}

// Operations under way end with an error, or were done already and are right.
void Run::give_up() {
  for (const auto& [id, group] : groups_) dl_abort(group.comm);
  while (!pending_.empty()) end_one(pending_.begin());
}

}  // namespace random_ops

// WaitFinder: finds whom each rank waited for, from the spans that the ranks report
// (base/flight_spans.h). Pure.
//
// In a collective whose result needs all ranks, a rank waits from its own entry until the last rank
// has entered, and that one is the culprit. Where the result comes from a root, the others wait for
// the root; where only the root gets one, only the root waits. A rank that receives a message waits
// for the sender. If the culprit itself waited for another rank meanwhile, that one is to blame for
// the time of its wait.
//
// Ranks report only what lasted, or came late (least_span()). So a rank that has not reported a
// collective entered it in time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/flight_spans.h"
#include "base/words.h"

namespace dlaunch {

// What made a culprit late, as far as it is known.
enum class WaitCause : std::uint8_t { compute, input, gc, link, host };
inline constexpr WordTable<WaitCause, 5> kWaitCauseWords = {{{"compute", WaitCause::compute},
                                                             {"input", WaitCause::input},
                                                             {"gc", WaitCause::gc},
                                                             {"link", WaitCause::link},
                                                             {"host", WaitCause::host}}};

struct Wait {
  int rank = 0, culprit = 0;
  WaitCause cause = WaitCause::compute;
  TimePoint from{}, to{};
  bool operator==(const Wait&) const = default;
};

class WaitFinder {
 public:
  // A rank's operation in a round. node: the rank's host. Kind `wait` says when the program itself
  // waited for operations in the background.
  void add(int round, int rank, int node, const Span& span);
  // The rank was stopped (SIGSTOP): other ranks wait for it also in a collective that it has
  // entered.
  void stood(int rank, TimePoint from, TimePoint to);
  // The waits of the operations that all ranks had left by then, in the order of their ends.
  std::vector<Wait> take(TimePoint by);

 private:
  struct Entry {
    int rank = 0, node = 0;
    Span span;
  };
  struct Interval {
    TimePoint from, to;
  };
  using Key = std::tuple<int, std::uint32_t, std::uint64_t>;  // round, group, seq
  using Entries = std::vector<Entry>;

  void judge(const Entries& entries, std::vector<Wait>& found) const;
  std::vector<Wait> blamed(const Wait& wait) const;
  void add_stood(const Entry& entry, TimePoint from, std::vector<Wait>& found) const;
  void add_exposed(const Entry& entry, const Wait& wait, std::vector<Wait>& found) const;

  std::map<Key, Entries> collectives_;
  Entries messages_;
  std::map<int, std::deque<Interval>> exposed_;  // by rank: spans of kind `wait`
  std::map<int, std::deque<Interval>> stood_;    // by rank
  std::map<int, std::deque<Wait>> past_;         // by rank: its last waits
};

}  // namespace dlaunch

// EventFeed: the newest events of a job, for programs that ask again and again (dlaunchctl events).
// Pure: it takes lines, and answers questions now or later.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class EventFeed {
 public:
  // lines: whole lines of JSON, without their newlines, oldest first; next: to ask for those after
  // them.
  struct Answer {
    std::vector<std::string> lines;
    std::uint64_t next = 0;
    std::uint64_t missing = 0;  // so many that came after the last answer are no longer kept
  };
  using Reply = std::function<void(const Answer&)>;
  static constexpr std::size_t kKept = 1000;
  static constexpr Duration kPatience = std::chrono::seconds(20);

  // origin: the number of the first event. Leaders of one job number their events from origins that
  // lie far apart, so that an `after` of another leader is not mistaken for one of ours.
  explicit EventFeed(std::uint64_t origin = 0) : origin_(origin), count_(origin) {}

  // last: no other event follows.
  void add(std::string line, bool last);
  // after: an earlier answer's `next`. Without it, or if there are newer events, the answer comes
  // at once, with those that are still kept; else with the next event, or empty after kPatience. A
  // program that follows the events asks with `after`, at first 0. All events are newer than an
  // `after` that is not ours.
  void ask(TimePoint now, std::optional<std::uint64_t> after, const Reply& reply);
  std::optional<TimePoint> deadline() const;
  void on_clock(TimePoint now);
  // A program that follows the events has not got the last one yet, and should ask within a moment.
  bool owes_last(TimePoint now) const;

 private:
  struct Question {
    std::uint64_t after;
    Reply reply;
    TimePoint until;
  };
  void remember(TimePoint now);
  void answer(std::uint64_t after, bool ours, const Reply& reply) const;

  const std::uint64_t origin_;
  std::deque<std::string> lines_;
  std::uint64_t count_;  // the origin and all lines so far
  bool ended_ = false;
  std::vector<Question> waiting_;
  std::deque<TimePoint> between_;  // when a program got an answer and has not asked again
};

}  // namespace dlaunch

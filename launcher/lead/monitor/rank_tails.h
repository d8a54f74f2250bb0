// RankTails: the last lines of ranks' output, for programs that ask again and again (dlaunchctl
// tail). A rank's host passes its lines on while somebody asks for them; the newest are kept here,
// so that a slow program holds up nobody. Pure: it takes questions and the hosts' lines, and
// answers now or later.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/lead/events/event_feed.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

class RankTails {
 public:
  using Answer = EventFeed::Answer;  // lines of JSON: {"stream", "text", "from", "end"}
  using Reply = EventFeed::Reply;
  using Ask = std::function<void(Slot slot, Duration lasts, bool again)>;  // asks the slot's host
  using SlotOf = std::function<Slot(int rank)>;                            // -1: it has none
  RankTails(Ask ask, SlotOf slot_of) : ask_(std::move(ask)), slot_of_(std::move(slot_of)) {}

  // As EventFeed::ask(); without `after` the answer comes once the rank's host has answered. The
  // last answer has the line {"ended": true}.
  void ask(TimePoint now, int rank, std::optional<std::uint64_t> after, const Reply& reply);
  // from: the name of the host and its own slot, for people and programs.
  void take(TimePoint now, Slot slot, const std::string& from, const NodeOutput& output);
  // Ranks may have other slots now.
  void look(TimePoint now);
  // The slot's host is lost.
  void lost(Slot slot);
  // The job has ended.
  void end(TimePoint now);
  std::optional<TimePoint> deadline() const;
  void on_clock(TimePoint now);
  // As EventFeed.
  bool owes_last(TimePoint now) const;

 private:
  struct Tail {
    explicit Tail(std::uint64_t origin) : feed(origin) {}
    Slot slot = -1;
    TimePoint asked{}, renewed{};
    bool told = false;  // the host has answered
    EventFeed feed;
    std::vector<Reply> first;  // questions that wait for that
  };
  void attend(TimePoint now, int rank, Tail& tail);
  static void answer_first(TimePoint now, Tail& tail);

  const Ask ask_;
  const SlotOf slot_of_;
  std::map<int, Tail> tails_;  // by rank
  bool ended_ = false;
};

}  // namespace dlaunch

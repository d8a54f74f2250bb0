// HeldFrames: what comes for a channel that this rank has not opened yet. A rank that is early says
// on its links that it has come to the meeting of a group, and passes what it has made for it; both
// wait here until this rank comes, too. What comes for a channel that this rank has closed is of no
// use to anybody. Pure but for the descriptors that it keeps.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "ring/links/link_frame.h"

namespace dlaunch {

struct HeldFrame {
  int peer = -1;
  LinkFrame frame;   // its text is `text`
  std::string text;  // which the frame does not own
  UniqueFd descriptor;
};

class HeldFrames {
 public:
  explicit HeldFrames(std::size_t most = 4096) : most_(most) {}

  // A frame for a channel that is not open. It is kept if it belongs to a meeting: JOIN, the
  // PASS of a segment, and the ABORT of a peer of whom one of these is kept. Beyond `most` the
  // oldest is dropped.
  void hold(int peer, const LinkFrame& frame, UniqueFd descriptor);
  // What has come for the channel, in order.
  std::vector<HeldFrame> take(std::uint64_t channel);
  // The peer has ended: no meeting will have it any more, nor what it passed. Its aborts stay, for
  // they may say which rank was lost before it.
  void drop(int peer);
  std::size_t size() const { return frames_.size(); }

 private:
  const std::size_t most_;
  std::deque<HeldFrame> frames_;
};

}  // namespace dlaunch

// HeldFrames: frames for a channel that this rank has not opened yet. A rank that is early at the
// bootstrap of a group announces itself on its links, and passes descriptors that it has made for
// the group; both wait here until this rank comes, too. Frames for a channel that this rank has
// closed are useless. Pure but for the descriptors that it keeps.
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

  // A frame for a channel that is not open. It is kept if it belongs to a bootstrap: a JOIN, the
  // PASS of a segment, and the ABORT of a peer with a kept JOIN or PASS. After the ABORT
  // the peer's PASSes for the channel are useless, and are dropped. Beyond `most` the oldest
  // frame is dropped.
  void hold(int peer, const LinkFrame& frame, UniqueFd descriptor);
  // Takes the frames for the channel, in order.
  std::vector<HeldFrame> take(std::uint64_t channel);
  // The peer has ended: drops its JOINs and what it passed. Its ABORTs stay, because they may name
  // a rank that was lost before it.
  void drop(int peer);
  std::size_t size() const { return frames_.size(); }

 private:
  const std::size_t most_;
  std::deque<HeldFrame> frames_;
};

}  // namespace dlaunch

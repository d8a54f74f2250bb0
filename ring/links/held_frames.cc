#include "ring/links/held_frames.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dlaunch {

void HeldFrames::hold(int peer, const LinkFrame& frame, UniqueFd descriptor) {
  using Type = LinkFrame::Type;
  const bool has_come = std::any_of(frames_.begin(), frames_.end(), [&](const HeldFrame& held) {
    return held.peer == peer && held.frame.channel == frame.channel;
  });
  const bool segment =
      frame.type == Type::pass && static_cast<Passed>(frame.seq & 255) == Passed::segment;
  const bool meets = frame.type == Type::join || segment;
  if (!meets && !(frame.type == Type::abort && has_come)) return;
  if (frame.type == Type::abort) {
    std::erase_if(frames_, [&](const HeldFrame& held) {
      return held.peer == peer && held.frame.channel == frame.channel &&
             held.frame.type == Type::pass;
    });
  }
  if (frames_.size() >= most_) frames_.pop_front();
  HeldFrame held{.peer = peer, .frame = frame, .text = std::string(frame.text), .descriptor = {}};
  held.frame.text = {};
  held.descriptor = std::move(descriptor);
  frames_.push_back(std::move(held));
}

void HeldFrames::drop(int peer) {
  std::erase_if(frames_, [peer](const HeldFrame& held) {
    return held.peer == peer && held.frame.type != LinkFrame::Type::abort;
  });
}

std::vector<HeldFrame> HeldFrames::take(std::uint64_t channel) {
  const auto of_others = [channel](const HeldFrame& held) { return held.frame.channel != channel; };
  const auto first = std::stable_partition(frames_.begin(), frames_.end(), of_others);
  std::vector<HeldFrame> taken(std::make_move_iterator(first),
                               std::make_move_iterator(frames_.end()));
  frames_.erase(first, frames_.end());
  return taken;
}

}  // namespace dlaunch

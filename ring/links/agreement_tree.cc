#include "ring/links/agreement_tree.h"

#include <bit>
#include <chrono>
#include <utility>

#include "base/failpoint.h"
#include "ring/links/link_graph.h"

namespace dlaunch {
namespace {

using Answer = LinkMessage::Answer;

// Ranks begin to wait at slightly different times.
constexpr Duration kStepPatience = std::chrono::milliseconds(300);

}  // namespace

LinkMessage failed_at(const Mesh& mesh, int rank, Error error) {
  error.what = "init: " + mesh.peers[static_cast<std::size_t>(rank)].who + ": " + error.what;
  error.rank = rank;
  return {.answer = Answer::failed, .error = std::move(error)};
}

AgreementTree::AgreementTree(int rank, const Mesh& mesh, TimePoint deadline)
    : rank_(rank),
      mesh_(mesh),
      deadline_(deadline),
      children_(tree_children(rank, static_cast<int>(mesh.peers.size()))),
      height_(static_cast<int>(children_.size())),
      levels_(std::bit_width(mesh.peers.size() - 1)) {}

LinkMessage AgreementTree::agree(LinkMessage own, const Decide& decide) {
  LinkMessage verdict = hear_children(std::move(own));
  failpoint("tree.heard");
  if (rank_ == 0) {
    verdict = decide(std::move(verdict));
  } else {
    verdict = hear_parent(verdict);
  }
  failpoint("tree.tells");
  tell_children(verdict);
  ++rounds_;
  return verdict;
}

LinkMessage AgreementTree::hear_children(LinkMessage own) const {
  for (const int child : children_) {
    if (own.answer == Answer::failed) break;
    own = joined(std::move(own), receive(child, height_));
  }
  return own;
}

// If the parent has ended it has sent the reason before, if it could.
LinkMessage AgreementTree::hear_parent(const LinkMessage& own) const {
  const int parent = tree_parent(rank_);
  auto sent = send_link_message(link(parent), own, {}, deadline_);
  LinkMessage verdict = receive(parent, levels_ + tree_depth(rank_));
  const bool better = own.answer == Answer::failed && !sent;
  return better ? LinkMessage{.answer = Answer::failed, .error = own.error} : std::move(verdict);
}

// A child that has ended is news for the control thread, which begins to watch its link soon.
void AgreementTree::tell_children(const LinkMessage& verdict) const {
  std::vector<int> fds;
  for (const UniqueFd& fd : verdict.fds) fds.push_back(fd.get());
  for (const int child : children_) {
    (void)send_link_message(link(child), verdict, fds, deadline_after(deadline_, kStepPatience));
  }
}

LinkMessage AgreementTree::receive(int rank, int steps) const {
  const auto patience = (steps + 1 + rounds_ * 2 * (levels_ + 1)) * kStepPatience;
  auto got = receive_link_message(link(rank), deadline_after(deadline_, patience));
  return got ? std::move(*got) : failed_at(mesh_, rank, got.error());
}

}  // namespace dlaunch

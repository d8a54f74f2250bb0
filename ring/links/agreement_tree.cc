#include "ring/links/agreement_tree.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/failpoint.h"
#include "ring/links/link_graph.h"

namespace dlaunch {
namespace {

using Answer = LinkMessage::Answer;

// Ranks begin to wait at slightly different times.
constexpr Duration kStepPatience = std::chrono::milliseconds(300);

std::vector<int> all_of(const Mesh& mesh) {
  std::vector<int> ranks(mesh.peers.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

LinkMessage failed_at(const Mesh& mesh, int rank, Error error) {
  error.what = "init: " + mesh.peers[static_cast<std::size_t>(rank)].who + ": " + error.what;
  error.rank = rank;
  return {.answer = Answer::failed, .error = std::move(error)};
}

AgreementTree::AgreementTree(int rank, const Mesh& mesh, TimePoint deadline)
    : AgreementTree(rank, all_of(mesh), mesh, deadline) {}

AgreementTree::AgreementTree(int rank, std::vector<int> members, const Mesh& mesh,
                             TimePoint deadline)
    : members_(std::move(members)),
      place_(
          static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin())),
      mesh_(mesh),
      deadline_(deadline),
      children_(tree_children(place_, static_cast<int>(members_.size()))),
      height_(static_cast<int>(children_.size())),
      levels_(std::bit_width(members_.size() - 1)) {}

std::vector<int> AgreementTree::neighbours() const {
  std::vector<int> found;
  if (place_ > 0) found.push_back(member(tree_parent(place_)));
  for (const int child : children_) found.push_back(member(child));
  return found;
}

LinkMessage AgreementTree::agree(LinkMessage own, const Decide& decide) {
  LinkMessage verdict = hear_children(std::move(own));
  failpoint("tree.heard");
  if (place_ == 0) {
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
    own = joined(std::move(own), receive(member(child), height_));
  }
  return own;
}

// If the parent has ended it has sent the reason before, if it could.
LinkMessage AgreementTree::hear_parent(const LinkMessage& own) const {
  const int parent = member(tree_parent(place_));
  auto sent = send_link_message(link(parent), own, {}, deadline_);
  LinkMessage verdict = receive(parent, levels_ + tree_depth(place_));
  const bool better = own.answer == Answer::failed && !sent;
  return better ? LinkMessage{.answer = Answer::failed, .error = own.error} : std::move(verdict);
}

// A child that has ended is news for the control thread, which begins to watch its link soon.
void AgreementTree::tell_children(const LinkMessage& verdict) const {
  std::vector<int> fds;
  for (const UniqueFd& fd : verdict.fds) fds.push_back(fd.get());
  for (const int child : children_) {
    (void)send_link_message(link(member(child)), verdict, fds,
                            deadline_after(deadline_, kStepPatience));
  }
}

LinkMessage AgreementTree::receive(int rank, int steps) const {
  const auto patience = (steps + 1 + rounds_ * 2 * (levels_ + 1)) * kStepPatience;
  auto got = receive_link_message(link(rank), deadline_after(deadline_, patience));
  return got ? std::move(*got) : failed_at(mesh_, rank, got.error());
}

}  // namespace dlaunch

#include "elastic/node_roster.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {

NodeRoster::NodeRoster(TimePoint now, const Config& config, Node self, int own_number)
    : config_(config),
      own_number_(own_number),
      now_(now),
      give_up_at_(deadline_after(now, config.join_timeout)),
      last_came_(now),
      nodes_(static_cast<std::size_t>(config.max_nodes)) {
  if (own_number >= 0) nodes_[static_cast<std::size_t>(own_number)] = std::move(self);
}

NodeRoster::NodeRoster(TimePoint now, const Config& config, std::vector<Node> was, int led,
                       int own_number)
    : NodeRoster(now, config, Node(), -1) {
  own_number_ = own_number;
  resumed_ = true;
  led_ = led;
  nodes_ = std::move(was);
  for (Node& node : nodes_) {
    if (&node - nodes_.data() != own_number) node.link = kNone;
  }
}

bool NodeRoster::all_expected() const {
  for (std::size_t number = 0; number < nodes_.size(); ++number) {
    const Node& node = nodes_[number];
    const bool expected = !resumed_ || (node.nproc > 0 && static_cast<int>(number) != led_);
    if (expected && node.link == kNone) return false;
  }
  return here() >= config_.min_nodes;
}

std::vector<NodeRoster::Action> NodeRoster::step(TimePoint now, const Event& event) {
  actions_.clear();
  now_ = now;
  if (!over_) std::visit([this](const auto& what) { on(what); }, event);
  return std::move(actions_);
}

std::optional<TimePoint> NodeRoster::deadline() const {
  if (begun_ || over_) return std::nullopt;
  if (alone()) return last_came_;
  if (here() < config_.min_nodes) return give_up_at_;
  return std::min(give_up_at_, last_came_ + config_.settle);
}

int NodeRoster::here() const {
  return static_cast<int>(
      std::ranges::count_if(nodes_, [](const Node& node) { return node.link != kNone; }));
}

std::optional<int> NodeRoster::node_of(Link link) const {
  const auto is = [&](const Node& node) { return node.link == link; };
  const auto found = std::ranges::find_if(nodes_, is);
  if (found == nodes_.end()) return std::nullopt;
  return static_cast<int>(found - nodes_.begin());
}

std::string NodeRoster::who_is_here() const {
  std::string names;
  for (const auto& node : nodes_) {
    if (node.link != kNone) names += (names.empty() ? "" : ", ") + node.host;
  }
  if (!names.empty()) names = " (" + names + ")";
  return fmt::format("{} of {} hosts are here{}", here(), config_.max_nodes, names);
}

// The number it asks for, the one it had, one that was always free, or one that is free now.
std::optional<int> NodeRoster::number_for(const Join& join) const {
  if (join.number >= 0) return join.number;
  const auto first = [&](auto fits) -> std::optional<int> {
    const auto found = std::ranges::find_if(nodes_, fits);
    if (found == nodes_.end()) return std::nullopt;
    return static_cast<int>(found - nodes_.begin());
  };
  const auto had = first([&](const Node& n) { return n.link == kNone && n.host == join.host; });
  if (had) return had;
  const auto fresh = first([](const Node& n) { return n.link == kNone && n.nproc == 0; });
  if (fresh) return fresh;
  return first([&](const Node& n) { return n.link == kNone && n.nproc == join.nproc; });
}

void NodeRoster::on(const Join& join) {
  const auto refuse = [&](std::string why) {
    actions_.push_back(Refuse{join.link, std::move(why)});
  };
  const auto number = number_for(join);
  if (!number) return refuse(fmt::format("all {} hosts are here", config_.max_nodes));
  if (*number >= config_.max_nodes) {
    return refuse(fmt::format("there is no node rank {} of {} nodes", *number, config_.max_nodes));
  }
  Node& node = nodes_[static_cast<std::size_t>(*number)];
  if (node.link != kNone && (*number == own_number_ || node.host != join.host)) {
    return refuse(fmt::format("node rank {} is host {}", *number, node.host));
  }
  const bool known = begun_ || resumed_;
  if (known && node.nproc != 0 && node.nproc != join.nproc) {
    return refuse(fmt::format("node rank {} has {} workers in this job, not {}", *number,
                              node.nproc, join.nproc));
  }
  // Its dlaunch was restarted before we noticed its end; or it has lost its starter, and lives.
  if (begun_ && node.link != kNone) actions_.push_back(Lost{*number});
  if (node.link != kNone) {
    actions_.push_back(Refuse{
        node.link, fmt::format("a later connection of host {} has taken its place", node.host)});
  }
  node = {join.link, join.host, join.nproc, join.rack};
  if (!resumed_) last_came_ = now_;
  if (begun_) return actions_.push_back(Back{*number});
  if (all_expected()) begin();
}

void NodeRoster::on(const Gone& gone) {
  const auto number = node_of(gone.link);
  if (!number) return;
  Node& node = nodes_[static_cast<std::size_t>(*number)];
  if (!begun_) {
    resumed_ ? void(node.link = kNone) : void(node = {});
    return;
  }
  node.link = kNone;
  actions_.push_back(Lost{*number});
}

void NodeRoster::on(const Clock&) {
  if (begun_) return;
  if (alone()) return begin();
  const bool enough = here() >= config_.min_nodes;
  if (enough && now_ >= std::min(last_came_ + config_.settle, give_up_at_)) return begin();
  if (now_ < give_up_at_) return;
  over_ = true;
  actions_.push_back(GiveUp{fmt::format("{} after {}, and {} are needed", who_is_here(),
                                        format_duration(config_.join_timeout), config_.min_nodes)});
}

void NodeRoster::begin() {
  begun_ = true;
  actions_.push_back(Begin{});
}

}  // namespace dlaunch

// Schedules in two levels: within racks, and between them.
#include <tuple>

#include "ring/plan/schedule_algorithms.h"

namespace dlaunch {
namespace {

// The values that wait for their reduction at one rank, all together.
constexpr std::size_t kMostWaiting = 16 << 20;
// So that the ways of a slice overlap: its granules, if these are not too small.
constexpr std::size_t kGranulesEach = 8, kLeastEach = 8 << 10;

// Each rank owns a slice. In each other rack one rank is its deputy; the ranks of a rack are
// deputies of as many owners each, or of one more. A granule of a slice goes these ways:
//
//   values    from each rank to the slice's deputy in its own rack, or to the owner
//   partials  the sum of each other rack, from the deputy to the owner
//   results   from the owner to the ranks of its rack, and to its deputies
//   copies    from each deputy to the ranks of its rack
//
// So a slice, or a result, goes from rack to rack once, and each rank sends as many bytes as in a
// direct reduction. The owner adds the values of its own rack, in the order of ranks, and then the
// partial sums of the others, in the order of racks.
//
// The line of a rack is the slowest, and what it carries comes early: a rank sends the values that
// stay in its rack behind those that go on, and behind its sum of these. Measured with 8 hosts in
// two racks, and a line between them as fast as those of the hosts: 1 MiB takes 81 ms; it took
// 120 ms with all values at once, and with two granules for each slice.
//
// Freedom from deadlock: between two ranks frames go in the order of their levels, which are a
// granule's number plus the delay of its way, and at one level in the order of the ways. A frame of
// the lowest level not yet done anywhere waits only for frames before it in that order: a value,
// for a place that granule i - window leaves with the frames of level i - 1, and one that stays
// also for values of its granule that go on; each other frame, for frames of its own granule.
enum class Way : std::uint8_t { values, partials, results, copies };

struct RackFrame {
  std::size_t level;
  Way way;
  bool stays;  // in the rack: what goes on from there comes first
  int owner;
  std::size_t granule;
  auto order() const { return std::tuple(level, way, stays, owner); }
};

class RackSchedule {
 public:
  RackSchedule(const Shape& shape, const Tuning& tuning, ProgramBuilder& b)
      : shape_(shape),
        b_(b),
        own_(b.rank()),
        racks_(tuning.racks ? *tuning.racks
                            : RankGroups(std::vector<int>(static_cast<std::size_t>(b.ranks())))),
        rack_(racks_.group_of(own_)),
        here_(racks_.ranks_of(rack_)),
        reduces_(shape.collective != Collective::all_gather),
        gathers_(shape.collective != Collective::reduce_scatter),
        served_(here_.size()) {
    cut_slices(tuning);
    for (int r = 0; r < b.ranks(); ++r) {
      served_[static_cast<std::size_t>(racks_.place_of(deputy(rack_, r)))].push_back(r);
    }
  }

  void add() {
    if (reduces_) add_sums();
    arrived_.assign(served_by(own_).size(), {});
    for (int d = 1; d < b_.ranks(); ++d) {
      const int from = b_.at_distance(-d);
      for (const RackFrame& frame : frames(from, own_)) receive(from, frame);
    }
    for (int d = 1; d < b_.ranks(); ++d) {
      const int to = b_.at_distance(d);
      for (const RackFrame& frame : frames(own_, to)) send(to, frame);
    }
    if (reduces_) b_.scratch(slots() * slot_bytes_);
  }

 private:
  using Steps = std::vector<std::int32_t>;

  // The series of granules that wait at the rank with the most of them.
  std::size_t most_series() const {
    std::size_t most = 0;
    for (int rack = 0; rack < racks_.groups(); ++rack) {
      const std::size_t here = racks_.ranks_of(rack).size();
      const std::size_t owners = static_cast<std::size_t>(b_.ranks()) + here - 1;
      most = std::max(most, owners / here * here);
    }
    return most + static_cast<std::size_t>(racks_.groups());
  }
  // All ranks come to the same granules and window.
  void cut_slices(const Tuning& tuning) {
    std::size_t granules = 0, longest = 0;
    for (int r = 0; r < b_.ranks(); ++r) {
      const Part slice = slice_of(shape_, r, b_.ranks());
      cuts_.push_back(cut_of(shape_, slice.first, slice.count, tuning));
      longest = std::max(longest, cuts_.back().bytes);
    }
    const std::size_t element = shape_.element_bytes;
    const std::size_t granule = std::max(longest / kGranulesEach, kLeastEach) / element * element;
    for (Cut& cut : cuts_) {
      if (!tuning.granule_by_rule) cut.granule = std::clamp(granule, element, cut.granule);
      granules = std::max(granules, cut.count());
    }
    slot_bytes_ = std::min(cuts_.front().granule, longest);
    const std::size_t bytes = most_series() * slot_bytes_;
    window_ = std::clamp<std::size_t>(bytes == 0 ? 1 : kMostWaiting / bytes, 1, tuning.window);
    slots_each_ = std::min(window_, granules);
  }

  int deputy(int rack, int owner) const {
    if (racks_.group_of(owner) == rack) return owner;
    const auto& ranks = racks_.ranks_of(rack);
    const auto before = std::ranges::lower_bound(ranks, owner) - ranks.begin();
    return ranks[static_cast<std::size_t>(owner - before) % ranks.size()];
  }
  // The owners of slices whose owner or deputy a rank of this rack is, ascending.
  const std::vector<int>& served_by(int rank) const {
    return served_[static_cast<std::size_t>(racks_.place_of(rank))];
  }
  std::size_t index_of(int owner) const {
    const auto& served = served_by(own_);
    return static_cast<std::size_t>(std::ranges::lower_bound(served, owner) - served.begin());
  }
  const Cut& cut(int owner) const { return cuts_[static_cast<std::size_t>(owner)]; }

  // -- Places in scratch memory: of other ranks' values, of sums on their way to other racks, and
  // of other racks' sums.
  std::size_t slots() const {
    const std::size_t served = served_by(own_).size();
    return (here_.size() * served + static_cast<std::size_t>(racks_.groups())) * slots_each_;
  }
  Location slot(std::size_t series, std::size_t granule) const {
    return {Region::scratch, (series * slots_each_ + granule % slots_each_) * slot_bytes_};
  }
  // The own values lie in the input, so this rank's place is free for its sums.
  Location value(int from, int owner, std::size_t granule) const {
    const auto place = static_cast<std::size_t>(racks_.place_of(from));
    return slot(place * served_by(own_).size() + index_of(owner), granule);
  }
  Location partial(int rack, std::size_t granule) const {
    return slot(here_.size() * served_by(own_).size() + static_cast<std::size_t>(rack), granule);
  }
  Location result(std::size_t granule) const {
    const Cut& own = cut(own_);
    const Region region = reduces_ ? Region::out : Region::in;
    const bool whole = reduces_ && gathers_;  // else the region has this slice only
    return {region, own.offset(granule) - (whole ? 0 : own.begin)};
  }

  // -- Steps
  void add_sums() {
    for (const int owner : served_by(own_)) {
      Steps& steps = sums_.emplace_back();
      // A rank alone in its rack sends other owners its values.
      if (owner != own_ && here_.size() == 1) continue;
      for (std::size_t i = 0; i < cut(owner).count(); ++i) steps.push_back(add_sum(owner, i));
    }
  }
  std::int32_t add_sum(int owner, std::size_t i) {
    const bool last = owner == own_;
    const auto sum = b_.reduce(last ? result(i) : value(own_, owner, i), cut(owner).size(i), last);
    for (const int r : here_) {
      b_.operand(r == own_ ? Location{Region::in, cut(owner).offset(i)} : value(r, owner, i));
    }
    for (int rack = 0; last && rack < racks_.groups(); ++rack) {
      if (rack != rack_) b_.operand(partial(rack, i));
    }
    return sum;
  }
  // The step for a granule; kNoStep: there is none.
  static std::int32_t step(const Steps& steps, std::size_t granule) {
    return granule < steps.size() ? steps[granule] : kNoStep;
  }
  std::int32_t sum(int owner, std::size_t granule) const {
    return reduces_ ? step(sums_[index_of(owner)], granule) : kNoStep;
  }
  // The sum of that granule that this rank sends to another rack, or the last one of several.
  std::int32_t sum_for_others(std::size_t granule) const {
    std::int32_t last = kNoStep;
    for (const int owner : served_by(own_)) {
      if (owner != own_ && sum(owner, granule) != kNoStep) last = sum(owner, granule);
    }
    return last;
  }
  // The step after which the place for a granule is free.
  std::int32_t freed(int owner, std::size_t granule) const {
    return granule < slots_each_ ? kNoStep : sum(owner, granule - slots_each_);
  }

  void receive(int from, const RackFrame& frame) {
    const int owner = frame.owner;
    const std::size_t i = frame.granule, bytes = cut(owner).size(i);
    if (frame.way == Way::values) {
      b_.recv(from, value(from, owner, i), bytes, freed(owner, i), sum(owner, i));
    } else if (frame.way == Way::partials) {
      b_.recv(from, partial(racks_.group_of(from), i), bytes, freed(owner, i), sum(owner, i));
    } else {
      const auto here = b_.recv(from, {Region::out, cut(owner).offset(i)}, bytes, kNoStep);
      if (racks_.group_of(from) != rack_) arrived_[index_of(owner)].push_back(here);
    }
  }
  void send(int to, const RackFrame& frame) {
    const int owner = frame.owner;
    const std::size_t i = frame.granule, bytes = cut(owner).size(i);
    const Location in{Region::in, cut(owner).offset(i)};
    if (frame.way == Way::values) {
      // What goes on to other racks has the line first.
      b_.send(to, in, bytes, frame.stays ? sum_for_others(i) : kNoStep);
    } else if (frame.way == Way::partials) {
      const auto ready = sum(owner, i);
      // The next sum in that place waits for this send.
      b_.send(to, ready == kNoStep ? in : value(own_, owner, i), bytes, ready,
              sum(owner, i + slots_each_));
    } else if (frame.way == Way::results) {
      b_.send(to, result(i), bytes, sum(owner, i));
    } else {
      b_.send(to, {Region::out, cut(owner).offset(i)}, bytes, arrived_[index_of(owner)][i]);
    }
  }

  // The frames from one rank to another, in order. One of the two is this rank.
  std::vector<RackFrame> frames(int from, int to) const {
    std::vector<RackFrame> found;
    const auto add = [&](Way way, int owner) {
      // By way: in levels.
      const std::size_t delays[] = {0, window_ - 1, 2 * window_ - 1, 3 * window_ - 1};
      const bool stays = racks_.group_of(owner) == racks_.group_of(to);
      const std::size_t delay =
          way == Way::values && stays ? window_ - 1 : delays[static_cast<std::size_t>(way)];
      for (std::size_t i = 0; i < cut(owner).count(); ++i) {
        found.push_back({i + delay, way, stays, owner, i});
      }
    };
    const int froms_rack = racks_.group_of(from), tos_rack = racks_.group_of(to);
    if (froms_rack == tos_rack) {
      if (reduces_) {
        for (const int owner : served_by(to)) add(Way::values, owner);
      }
      if (gathers_) {
        add(Way::results, from);
        for (const int owner : served_by(from)) {
          if (owner != from) add(Way::copies, owner);
        }
      }
    } else {
      if (reduces_ && deputy(froms_rack, to) == from) add(Way::partials, to);
      if (gathers_ && deputy(tos_rack, from) == to) add(Way::results, from);
    }
    std::ranges::sort(found, {}, &RackFrame::order);
    return found;
  }

  const Shape& shape_;
  ProgramBuilder& b_;
  const int own_;
  const RankGroups racks_;
  const int rack_;
  const std::vector<int>& here_;  // the ranks of this rack
  const bool reduces_, gathers_;
  std::vector<Cut> cuts_;  // by owner
  std::size_t slot_bytes_ = 0, window_ = 1, slots_each_ = 1;
  std::vector<std::vector<int>> served_;  // by place in this rack
  std::vector<Steps> sums_, arrived_;     // by served owner
};

}  // namespace

void rack_schedule(const Shape& shape, const Tuning& tuning, ProgramBuilder& b) {
  RackSchedule(shape, tuning, b).add();
}

}  // namespace dlaunch

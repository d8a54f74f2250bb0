#include <bit>

#include "ring/plan/schedule_algorithms.h"

namespace dlaunch {
namespace {

Cut slice_of(const Shape& shape, int owner, int ranks, const Tuning& tuning) {
  const Part slice = slice_of(shape, owner, ranks);
  return cut_of(shape, slice.first, slice.count, tuning);
}

// The places of the reduced granules of a rank's slice. A reduce leaves them in scratch memory,
// from `spare` on, on ranks other than the root.
class Results {
 public:
  Results(const Shape& shape, const Cut& own, int rank, std::size_t spare) : own_(own) {
    if (shape.collective == Collective::reduce_scatter) shift_ = own.begin;
    if (shape.collective != Collective::reduce || rank == shape.root) return;
    region_ = Region::scratch;
    shift_ = own.begin - spare;  // wraps, and wraps back
    bytes_ = own.bytes;
  }
  Location at(std::size_t granule) const { return {region_, own_.offset(granule) - shift_}; }
  std::size_t scratch_bytes() const { return bytes_; }

 private:
  const Cut own_;
  Region region_ = Region::out;
  std::size_t shift_ = 0, bytes_ = 0;
};

// One rank's share of the reduction: the steps that reduce, granule by granule, the values of all
// ranks. The others' values wait in slots of scratch memory; each rank has as many slots as it may
// have granules in flight.
class Sums {
 public:
  Sums(const Shape& shape, const Cut& own, const Tuning& tuning, ProgramBuilder& b)
      : b_(b),
        own_(own),
        slots_(std::min(tuning.window, own.count())),
        slot_bytes_(std::min(own.granule, own.bytes)),
        staging_(slots_ * slot_bytes_ * static_cast<std::size_t>(b.ranks() - 1)),
        results_(shape, own, b.rank(), staging_) {
    for (std::size_t i = 0; i < own.count(); ++i) {
      steps_.push_back(b.reduce(results_.at(i), own.size(i), true));
      for (int r = 0; r < b.ranks(); ++r) {
        b.operand(r == b.rank() ? Location{Region::in, own.offset(i)} : slot(r, i));
      }
    }
    b.scratch(staging_ + results_.scratch_bytes());
  }

  void take(int from, std::size_t i) {
    b_.recv(from, slot(from, i), own_.size(i), i < slots_ ? kNoStep : steps_[i - slots_],
            steps_[i]);
  }
  void tell(int to, std::size_t i) { b_.send(to, results_.at(i), own_.size(i), steps_[i]); }

 private:
  Location slot(int peer, std::size_t i) const {
    const auto index = static_cast<std::size_t>(peer < b_.rank() ? peer : peer - 1);
    return Location{Region::scratch, (index * slots_ + i % slots_) * slot_bytes_};
  }

  ProgramBuilder& b_;
  const Cut own_;
  const std::size_t slots_, slot_bytes_, staging_;
  const Results results_;
  std::vector<std::int32_t> steps_;
};

// The frames from one rank to another in a direct reduction, in order: contributions to the
// receiver's slice, at most `window` of them ahead of the results of the sender's slice.
// Freedom from deadlock: give contribution i the level i, result i the level i + window. A step of
// the lowest level not yet done anywhere waits only for steps of lower levels.
template <class OnContribution, class OnResult>
void for_each_between(std::size_t contributions, std::size_t results, std::size_t window,
                      OnContribution on_contribution, OnResult on_result) {
  for (std::size_t i = 0; i < std::max(contributions, results + window); ++i) {
    if (i >= window && i - window < results) on_result(i - window);
    if (i < contributions) on_contribution(i);
  }
}

}  // namespace

Part slice_of(const Shape& shape, int owner, int ranks) {
  if (shape.collective != Collective::all_reduce && shape.collective != Collective::reduce) {
    return part_of(shape, owner);
  }
  const std::size_t each = shape.count / ranks, rest = shape.count % ranks;
  const auto o = static_cast<std::size_t>(owner);
  return {each * o + std::min(o, rest), each + (o < rest ? 1 : 0)};
}

void exchange_all_reduce(const Shape& shape, ProgramBuilder& b) {
  const std::size_t bytes = shape.count * shape.element_bytes;
  const auto slot = [&](int peer) {
    return Location{Region::scratch, bytes * (peer < b.rank() ? peer : peer - 1)};
  };
  const auto sum = b.reduce({Region::out, 0}, bytes, true);
  for (int r = 0; r < b.ranks(); ++r) b.operand(r == b.rank() ? Location{Region::in, 0} : slot(r));
  for (int d = 1; d < b.ranks(); ++d) {
    // In place, the sum overwrites data that is being sent: it waits for the sends, too.
    b.send(b.at_distance(d), {Region::in, 0}, bytes, kNoStep, sum);
    b.recv(b.at_distance(-d), slot(b.at_distance(-d)), bytes, kNoStep, sum);
  }
  b.scratch(bytes * (b.ranks() - 1));
}

// Scratch memory holds the values of the ranks from this one upwards. The first place is this
// rank's own; it is filled after the first round, which sends the value itself.
void doubling_all_reduce(const Shape& shape, ProgramBuilder& b) {
  const std::size_t bytes = shape.count * shape.element_bytes;
  const auto n = static_cast<std::size_t>(b.ranks()), own = static_cast<std::size_t>(b.rank());
  const auto location = [&](std::size_t distance) {
    return Location{Region::scratch, bytes * distance};
  };
  const auto sum = b.reduce({Region::out, 0}, bytes, true);
  for (std::size_t r = 0; r < n; ++r) {
    b.operand(r == own ? Location{Region::in, 0} : location((r + n - own) % n));
  }
  // By round: the join of its values and those of all earlier rounds.
  std::vector<std::int32_t> heard(std::bit_width(n - 1), sum);
  for (std::size_t round = heard.size() - 1; round-- > 1;) heard[round] = b.join(heard[round + 1]);
  if (heard.size() > 1) {
    heard[0] = b.reduce(location(0), bytes, false, heard[1]);
    b.operand({Region::in, 0});
  }
  for (std::size_t round = 0; round < heard.size(); ++round) {
    const std::size_t have = std::size_t{1} << round, wants = std::min(have, n - have);
    const int distance = static_cast<int>(have);
    if (round == 0) {
      // In place, the sum overwrites data that is being sent: it waits for that send, too.
      b.send(b.at_distance(-distance), {Region::in, 0}, bytes, kNoStep, sum);
    } else {
      b.send(b.at_distance(-distance), location(0), wants * bytes, heard[round - 1]);
    }
    b.recv(b.at_distance(distance), location(have), wants * bytes, kNoStep, heard[round]);
  }
  b.scratch(bytes * n);
}

void star_reduction(const Shape& shape, const Tuning& tuning, ProgramBuilder& b) {
  const Cut all = cut_of(shape, 0, shape.count, tuning);
  const bool answers = shape.collective == Collective::all_reduce;
  const int centre = answers ? 0 : shape.root;
  if (b.rank() != centre) {
    for (std::size_t i = 0; i < all.count(); ++i) {
      b.send(centre, {Region::in, all.offset(i)}, all.size(i), kNoStep);
      if (answers) b.recv(centre, {Region::out, all.offset(i)}, all.size(i), kNoStep);
    }
    return;
  }
  Sums sums(shape, all, tuning, b);
  for (int r = 0; r < b.ranks(); ++r) {
    for (std::size_t i = 0; r != centre && i < all.count(); ++i) {
      sums.take(r, i);
      if (answers) sums.tell(r, i);
    }
  }
}

void tree_reduction(const Shape& shape, ProgramBuilder& b) {
  const std::size_t bytes = shape.count * shape.element_bytes;
  const bool answers = shape.collective == Collective::all_reduce;
  const int n = b.ranks(), root = answers ? 0 : shape.root;
  const int place = b.at_distance(-root);
  const auto rank_at = [&](int other) { return b.at_distance(other - place); };
  // The subtree below this rank spans the places up to its own lowest bit.
  const int reach = place == 0 ? n : place & -place;
  std::vector<int> below;
  for (int d = 1; d < reach && place + d < n; d *= 2) below.push_back(rank_at(place + d));
  const auto staged = [&](std::size_t i) { return Location{Region::scratch, bytes * i}; };

  const Location sum = place == 0 ? Location{Region::out, 0} : staged(below.size());
  std::int32_t summed = kNoStep, have = kNoStep;
  if (!below.empty()) {
    summed = have = b.reduce(sum, bytes, place == 0);
    b.operand({Region::in, 0});
    for (std::size_t i = 0; i < below.size(); ++i) b.operand(staged(i));
    for (std::size_t i = 0; i < below.size(); ++i) {
      b.recv(below[i], staged(i), bytes, kNoStep, summed);
    }
  }
  if (place != 0) {
    const int above = rank_at(place - reach);
    const auto sent = b.send(above, below.empty() ? Location{Region::in, 0} : sum, bytes, summed);
    // In place, the result overwrites what is being sent.
    if (answers) have = b.recv(above, {Region::out, 0}, bytes, sent);
  }
  for (std::size_t i = below.size(); answers && i-- > 0;) {
    b.send(below[i], {Region::out, 0}, bytes, have);
  }
  b.scratch(bytes * (below.size() + 1));
}

void direct_reduction(const Shape& shape, const Tuning& tuning, ProgramBuilder& b) {
  const auto wants_results = [&](int rank) {
    return shape.collective == Collective::all_reduce ||
           (shape.collective == Collective::reduce && rank == shape.root);
  };
  const Cut own = slice_of(shape, b.rank(), b.ranks(), tuning);
  Sums sums(shape, own, tuning, b);
  for (int d = 1; d < b.ranks(); ++d) {
    const int to = b.at_distance(d);
    const Cut theirs = slice_of(shape, to, b.ranks(), tuning);
    for_each_between(
        theirs.count(), wants_results(to) ? own.count() : 0, tuning.window,
        [&](std::size_t i) {
          b.send(to, {Region::in, theirs.offset(i)}, theirs.size(i), kNoStep);
        },
        [&](std::size_t i) { sums.tell(to, i); });
    const int from = b.at_distance(-d);
    const Cut other = slice_of(shape, from, b.ranks(), tuning);
    for_each_between(
        own.count(), wants_results(b.rank()) ? other.count() : 0, tuning.window,
        [&](std::size_t i) { sums.take(from, i); },
        [&](std::size_t i) {
          b.recv(from, {Region::out, other.offset(i)}, other.size(i), kNoStep);
        });
  }
}

// The cut-through ring. Granules go round in windows: for each window, for each of the steps of the
// textbook ring, for each granule of the window. So a granule's next step comes one window after it
// on the wire, which hides the latency of n hops. Two windows of slots are enough: among all
// counters of sends and receives, the lowest can always advance. Chunk c starts at rank c + 1, so
// that it is complete at rank c. Chunks differ by at most one element; some last granules are
// empty.
void ring_schedule(const Shape& shape, const Tuning& tuning, ProgramBuilder& b) {
  const int n = b.ranks();
  const bool reduces = shape.collective != Collective::all_gather;
  const bool gathers =
      shape.collective == Collective::all_reduce || shape.collective == Collective::all_gather;
  const int next = b.at_distance(1), previous = b.at_distance(-1);
  const std::size_t granule = granule_of(shape, tuning), slots = 2 * tuning.window;
  const auto chunk = [&](int distance) {
    return slice_of(shape, b.at_distance(distance), n, tuning);
  };
  const Cut own = chunk(0);
  const Results results(shape, own, b.rank(), slots * granule);
  std::size_t granules = 0;
  for (int d = 0; d < n; ++d) granules = std::max(granules, chunk(d).count());
  std::vector<std::int32_t> sums(granules, kNoStep);  // by granule of the own chunk
  std::vector<std::int32_t> slot_free(slots, kNoStep);
  std::size_t slot = 0;

  for (std::size_t first = 0; first < granules; first += tuning.window) {
    const std::size_t width = std::min(tuning.window, granules - first);
    // By granule of the window: the step that it waits for, and its place.
    std::vector<std::int32_t> ready(width, kNoStep);
    std::vector<Location> source(width);
    std::vector<std::size_t> used_slot(width, slots);  // slots: none
    for (int s = 0; reduces && s < n - 1; ++s) {
      const Cut out_chunk = chunk(-1 - s), in_chunk = chunk(-2 - s);
      const bool last = s == n - 2;
      for (std::size_t k = 0; k < width; ++k) {
        const std::size_t g = first + k;
        const Location from = s == 0 ? Location{Region::in, out_chunk.offset(g)} : source[k];
        const auto sending = b.send(next, from, out_chunk.size(g), ready[k]);
        if (used_slot[k] < slots) slot_free[used_slot[k]] = sending;

        const std::size_t mine = slot++ % slots;
        const Location staged{Region::scratch, mine * granule};
        source[k] = last ? results.at(g) : staged;
        ready[k] = b.reduce(source[k], in_chunk.size(g), last);
        if (last) sums[g] = ready[k];
        b.operand(staged);
        b.operand({Region::in, in_chunk.offset(g)});
        b.recv(previous, staged, in_chunk.size(g), slot_free[mine], ready[k]);
        slot_free[mine] = ready[k];
        used_slot[k] = last ? slots : mine;
      }
    }
    for (int s = 0; gathers && s < n - 1; ++s) {
      const Cut out_chunk = chunk(-s), in_chunk = chunk(-1 - s);
      for (std::size_t k = 0; k < width; ++k) {
        const std::size_t g = first + k;
        const bool own_input = s == 0 && !reduces;
        const Location from = own_input
                                  ? Location{Region::in, out_chunk.offset(g) - out_chunk.begin}
                                  : Location{Region::out, out_chunk.offset(g)};
        b.send(next, from, out_chunk.size(g), ready[k]);
        ready[k] = b.recv(previous, {Region::out, in_chunk.offset(g)}, in_chunk.size(g), kNoStep);
      }
    }
  }
  if (reduces) b.scratch(slots * granule + results.scratch_bytes());
  if (shape.collective != Collective::reduce) return;
  for (std::size_t g = 0; b.rank() != shape.root && g < own.count(); ++g) {
    b.send(shape.root, results.at(g), own.size(g), sums[g]);
  }
  for (int d = 1; b.rank() == shape.root && d < n; ++d) {
    const Cut theirs = chunk(d);
    for (std::size_t g = 0; g < theirs.count(); ++g) {
      b.recv(b.at_distance(d), {Region::out, theirs.offset(g)}, theirs.size(g), kNoStep);
    }
  }
}

}  // namespace dlaunch

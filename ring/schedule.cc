#include "ring/schedule.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace dlaunch {
namespace {

// Adds steps to a program and links them.
class Builder {
 public:
  Builder(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    program_.sends.resize(ranks);
    program_.recvs.resize(ranks);
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int at_distance(int distance) const { return ((rank_ + distance) % ranks_ + ranks_) % ranks_; }

  std::int32_t send(int peer, Place from, std::size_t bytes, std::int32_t needs,
                    std::int32_t then = kNoStep) {
    const auto id = add({.kind = StepKind::send,
                         .peer = static_cast<std::int16_t>(peer),
                         .needs = needs,
                         .then = then,
                         .place = from,
                         .bytes = bytes});
    program_.sends[peer].push_back(id);
    return id;
  }
  std::int32_t recv(int peer, Place to, std::size_t bytes, std::int32_t needs,
                    std::int32_t then = kNoStep) {
    const auto id = add({.kind = StepKind::recv,
                         .peer = static_cast<std::int16_t>(peer),
                         .needs = needs,
                         .then = then,
                         .place = to,
                         .bytes = bytes});
    program_.recvs[peer].push_back(id);
    return id;
  }
  // Runs when all steps that name it as their `then` are done; operands follow by operand().
  std::int32_t reduce(Place to, std::size_t bytes, bool last) {
    return add({.kind = StepKind::reduce,
                .last = last,
                .first_operand = static_cast<std::uint32_t>(program_.operands.size()),
                .place = to,
                .bytes = bytes});
  }
  std::int32_t join(std::int32_t then = kNoStep) {
    return add({.kind = StepKind::reduce, .then = then});
  }
  void operand(Place place) {
    program_.operands.push_back(place);
    ++program_.steps.back().operand_count;
  }
  void copy(Place from, Place to, std::size_t bytes) {
    add({.kind = StepKind::copy,
         .first_operand = static_cast<std::uint32_t>(program_.operands.size()),
         .place = to,
         .bytes = bytes});
    operand(from);
  }
  void scratch(std::size_t bytes) { program_.scratch_bytes = bytes; }
  Program take() {
    for (const auto& sends : program_.sends) {
      std::size_t bytes = 0;
      for (const auto id : sends) bytes += program_.steps[id].bytes;
      program_.most_to_one = std::max(program_.most_to_one, bytes);
    }
    return std::move(program_);
  }

 private:
  std::int32_t add(const Step& step) {
    if (step.then != kNoStep) ++program_.steps[step.then].pending;
    program_.steps.push_back(step);
    return static_cast<std::int32_t>(program_.steps.size()) - 1;
  }

  const int rank_, ranks_;
  Program program_;
};

// A byte range cut into granules of whole elements; at least one, which may be empty.
struct Cut {
  std::size_t begin = 0, bytes = 0, granule = 1;

  std::size_t count() const { return bytes == 0 ? 1 : (bytes + granule - 1) / granule; }
  std::size_t offset(std::size_t i) const { return begin + std::min(i * granule, bytes); }
  std::size_t size(std::size_t i) const {
    const std::size_t start = std::min(i * granule, bytes);
    return std::min(granule, bytes - start);
  }
};

std::size_t granule_of(const Shape& shape, const Tuning& tuning) {
  return std::max(tuning.granule_bytes / shape.element_bytes, std::size_t{1}) * shape.element_bytes;
}

Cut cut_of(const Shape& shape, std::size_t first, std::size_t count, const Tuning& tuning) {
  return {.begin = first * shape.element_bytes,
          .bytes = count * shape.element_bytes,
          .granule = granule_of(shape, tuning)};
}

// The part of the data that rank `owner` reduces: for all_reduce and reduce near-equal slices of
// count elements, for the others every rank's own part.
Cut slice_of(const Shape& shape, int owner, int ranks, const Tuning& tuning) {
  if (shape.collective != Collective::all_reduce && shape.collective != Collective::reduce) {
    const Part part = part_of(shape, owner);
    return cut_of(shape, part.first, part.count, tuning);
  }
  const std::size_t each = shape.count / ranks, rest = shape.count % ranks;
  const auto start = [&](std::size_t r) { return each * r + std::min(r, rest); };
  const auto o = static_cast<std::size_t>(owner);
  return cut_of(shape, start(o), start(o + 1) - start(o), tuning);
}

// Where the reduced granules of a rank's slice belong. A reduce leaves them in scratch memory, from
// `spare` on, where this rank is not the root.
class Results {
 public:
  Results(const Shape& shape, const Cut& own, int rank, std::size_t spare) : own_(own) {
    if (shape.collective == Collective::reduce_scatter) shift_ = own.begin;
    if (shape.collective != Collective::reduce || rank == shape.root) return;
    region_ = Region::scratch;
    shift_ = own.begin - spare;  // wraps, and wraps back
    bytes_ = own.bytes;
  }
  Place at(std::size_t granule) const { return {region_, own_.offset(granule) - shift_}; }
  std::size_t scratch_bytes() const { return bytes_; }

 private:
  const Cut own_;
  Region region_ = Region::out;
  std::size_t shift_ = 0, bytes_ = 0;
};

void exchange_all_reduce(const Shape& shape, Builder& b) {
  const std::size_t bytes = shape.count * shape.element_bytes;
  const auto slot = [&](int peer) {
    return Place{Region::scratch, bytes * (peer < b.rank() ? peer : peer - 1)};
  };
  const auto sum = b.reduce({Region::out, 0}, bytes, true);
  for (int r = 0; r < b.ranks(); ++r) b.operand(r == b.rank() ? Place{Region::in, 0} : slot(r));
  for (int d = 1; d < b.ranks(); ++d) {
    // In place, the sum overwrites what is sent: it waits for the sends too.
    b.send(b.at_distance(d), {Region::in, 0}, bytes, kNoStep, sum);
    b.recv(b.at_distance(-d), slot(b.at_distance(-d)), bytes, kNoStep, sum);
  }
  b.scratch(bytes * (b.ranks() - 1));
}

// What one rank reduces of the data: the steps that do it, granule by granule, from what all ranks
// give. The others' values wait in slots of scratch memory, of which a rank has as many as granules
// may be in flight from it.
class Sums {
 public:
  Sums(const Shape& shape, const Cut& own, const Tuning& tuning, Builder& b)
      : b_(b),
        own_(own),
        slots_(std::min(tuning.window, own.count())),
        slot_bytes_(std::min(own.granule, own.bytes)),
        staging_(slots_ * slot_bytes_ * static_cast<std::size_t>(b.ranks() - 1)),
        results_(shape, own, b.rank(), staging_) {
    for (std::size_t i = 0; i < own.count(); ++i) {
      steps_.push_back(b.reduce(results_.at(i), own.size(i), true));
      for (int r = 0; r < b.ranks(); ++r) {
        b.operand(r == b.rank() ? Place{Region::in, own.offset(i)} : slot(r, i));
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
  Place slot(int peer, std::size_t i) const {
    const auto index = static_cast<std::size_t>(peer < b_.rank() ? peer : peer - 1);
    return Place{Region::scratch, (index * slots_ + i % slots_) * slot_bytes_};
  }

  Builder& b_;
  const Cut own_;
  const std::size_t slots_, slot_bytes_, staging_;
  const Results results_;
  std::vector<std::int32_t> steps_;
};

// One rank combines, and answers if all want to know: 2(n-1) frames instead of n(n-1) where one
// granule is enough.
void star_reduction(const Shape& shape, const Tuning& tuning, Builder& b) {
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

// What goes from one rank to another in a direct reduction, in order: contributions to the
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

void direct_reduction(const Shape& shape, const Tuning& tuning, Builder& b) {
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
// on the wire, which hides the latency of n hops, and two windows of slots are enough: of all
// counters of sends and receives, the lowest can always move on. Chunk c starts at rank c + 1, so
// that it is complete at rank c. Chunks differ by an element at most; some last granules are empty.
void ring_schedule(const Shape& shape, const Tuning& tuning, Builder& b) {
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
    // By granule of the window: the step after which it may be sent on, and from where.
    std::vector<std::int32_t> ready(width, kNoStep);
    std::vector<Place> source(width);
    std::vector<std::size_t> used_slot(width, slots);  // slots: none
    for (int s = 0; reduces && s < n - 1; ++s) {
      const Cut out_chunk = chunk(-1 - s), in_chunk = chunk(-2 - s);
      const bool last = s == n - 2;
      for (std::size_t k = 0; k < width; ++k) {
        const std::size_t g = first + k;
        const Place from = s == 0 ? Place{Region::in, out_chunk.offset(g)} : source[k];
        const auto sending = b.send(next, from, out_chunk.size(g), ready[k]);
        if (used_slot[k] < slots) slot_free[used_slot[k]] = sending;

        const std::size_t mine = slot++ % slots;
        const Place staged{Region::scratch, mine * granule};
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
        const Place from = own_input ? Place{Region::in, out_chunk.offset(g) - out_chunk.begin}
                                     : Place{Region::out, out_chunk.offset(g)};
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

void direct_exchange(const Shape& shape, const Tuning& tuning, Builder& b) {
  for (int d = 1; d < b.ranks(); ++d) {
    const int to = b.at_distance(d), from = b.at_distance(-d);
    if (const Delivery out = delivery(shape, b.rank(), to); out.exists) {
      const Cut cut = cut_of(shape, out.from, out.count, tuning);
      for (std::size_t i = 0; i < cut.count(); ++i) {
        b.send(to, {Region::in, cut.offset(i)}, cut.size(i), kNoStep);
      }
    }
    if (const Delivery in = delivery(shape, from, b.rank()); in.exists) {
      const Cut cut = cut_of(shape, in.to, in.count, tuning);
      for (std::size_t i = 0; i < cut.count(); ++i) {
        b.recv(from, {Region::out, cut.offset(i)}, cut.size(i), kNoStep);
      }
    }
  }
}

void binomial_broadcast(const Shape& shape, Builder& b) {
  const std::size_t bytes = shape.count * shape.element_bytes;
  const auto place = b.rank() == shape.root ? Place{Region::in, 0} : Place{Region::out, 0};
  const auto from_root = static_cast<unsigned>(b.at_distance(-shape.root));
  // The subtree below this rank spans the distances up to its own lowest bit.
  unsigned reach = std::bit_ceil(static_cast<unsigned>(b.ranks()));
  std::int32_t have = kNoStep;
  if (from_root != 0) {
    reach = from_root & -from_root;
    have = b.recv(b.at_distance(-static_cast<int>(reach)), place, bytes, kNoStep);
  }
  for (unsigned d = reach / 2; d > 0; d /= 2) {
    if (from_root + d < static_cast<unsigned>(b.ranks())) {
      b.send(b.at_distance(static_cast<int>(d)), place, bytes, have);
    }
  }
}

void chain_broadcast(const Shape& shape, const Tuning& tuning, Builder& b) {
  const Cut cut{.bytes = shape.count * shape.element_bytes, .granule = granule_of(shape, tuning)};
  const bool root = b.rank() == shape.root, last = b.at_distance(1) == shape.root;
  for (std::size_t i = 0; i < cut.count(); ++i) {
    const Place place{root ? Region::in : Region::out, cut.offset(i)};
    const auto have = root ? kNoStep : b.recv(b.at_distance(-1), place, cut.size(i), kNoStep);
    if (!last) b.send(b.at_distance(1), place, cut.size(i), have);
  }
}

// Dissemination (Hensgen, Finkel and Manber, 1988): after ceil(log2 n) rounds everybody has heard,
// through others, from everybody.
void dissemination_barrier(Builder& b) {
  // By round: this round's frame and those of all earlier rounds are in. Made from the last one on,
  // as each leads to the next.
  std::vector<std::int32_t> heard(std::bit_width(static_cast<unsigned>(b.ranks() - 1)), kNoStep);
  for (std::size_t round = heard.size(); round-- > 0;) {
    heard[round] = b.join(round + 1 < heard.size() ? heard[round + 1] : kNoStep);
  }
  for (std::size_t round = 0; round < heard.size(); ++round) {
    const int distance = 1 << round;
    b.send(b.at_distance(distance), {}, 0, round == 0 ? kNoStep : heard[round - 1]);
    b.recv(b.at_distance(-distance), {}, 0, kNoStep, heard[round]);
  }
}

void copy_own_data(const Shape& shape, Builder& b) {
  const std::size_t element = shape.element_bytes;
  if (const Delivery own = delivery(shape, b.rank(), b.rank()); own.exists) {
    b.copy({Region::in, own.from * element}, {Region::out, own.to * element}, own.count * element);
  }
  if (b.ranks() == 1 && traits_of(shape.collective).reduces) {
    b.copy({Region::in, 0}, {Region::out, 0}, shape.count * element);
  }
}

// As if the members were all there is, then with the numbers they have among all.
Program make_members_program(const Shape& shape, int rank, int ranks, const Tuning& tuning) {
  const auto& members = shape.members;
  const auto place = [&](int r) {
    return static_cast<int>(std::find(members.begin(), members.end(), r) - members.begin());
  };
  Shape inner = shape;
  inner.members.clear();
  if (inner.root >= 0) inner.root = place(inner.root);
  Program program = make_program(inner, place(rank), static_cast<int>(members.size()), tuning);
  for (Step& step : program.steps) {
    if (step.peer >= 0) step.peer = static_cast<std::int16_t>(members[step.peer]);
  }
  const auto spread = [&](std::vector<std::vector<std::int32_t>>& by_peer) {
    std::vector<std::vector<std::int32_t>> all(ranks);
    for (std::size_t i = 0; i < by_peer.size(); ++i) all[members[i]] = std::move(by_peer[i]);
    by_peer = std::move(all);
  };
  spread(program.sends);
  spread(program.recvs);
  return program;
}

}  // namespace

Tuning tuning_within_host(int ranks, bool crowded) {
  constexpr std::size_t kInFlight = 1 << 20;
  Tuning tuning;
  if (crowded && ranks <= tuning.exchange_ranks) tuning.star_bytes = 256 << 10;
  if (crowded) {
    tuning.star_ranks = tuning.exchange_ranks;
    tuning.exchange_ranks = 2;
  }
  if (!crowded) tuning.pair_bytes = 512 << 10;
  const std::size_t granule = std::bit_floor(kInFlight / static_cast<std::size_t>(ranks));
  if (granule <= tuning.granule_bytes) return tuning;
  tuning.granule_bytes = granule;
  tuning.window = 1;
  return tuning;
}

Tuning tuning_between_hosts(Duration round_trip) {
  constexpr double kBytesPerSecond = 10e9 / 8;
  constexpr std::size_t kLeast = 6, kMost = 64;  // granules
  Tuning tuning;
  const double held = std::chrono::duration<double>(round_trip).count() * kBytesPerSecond;
  const double granules = held / static_cast<double>(tuning.granule_bytes);
  tuning.window = std::min(kMost, kLeast + static_cast<std::size_t>(std::min(granules, 1e3)));

  constexpr double kSlowBytesPerSecond = 1e9 / 8, kReducedPerSecond = 1e9;
  constexpr std::size_t kMostExchanged = 4 << 20;
  const double latency = std::chrono::duration<double>(round_trip).count() / 2;
  const auto at_least = [&](std::size_t least, double bytes) {
    return std::clamp(static_cast<std::size_t>(bytes), least, kMostExchanged);
  };
  tuning.exchange_bytes = at_least(tuning.exchange_bytes, latency * kSlowBytesPerSecond);
  tuning.pair_bytes = at_least(tuning.pair_bytes, latency * kReducedPerSecond);
  // Frames from all to all are many, but where they are cheap beside the latency.
  if (round_trip >= kFarAway) tuning.exchange_ranks = tuning.direct_ranks;
  return tuning;
}

Way way_of(const Shape& shape, int ranks, const Tuning& tuning) {
  if (ranks == 1) return Way::copy;
  if (tuning.forced) return *tuning.forced;
  const std::size_t bytes = shape.count * shape.element_bytes;
  const bool small = bytes <= tuning.small_bytes;
  const Way large = ranks <= tuning.direct_ranks ? Way::direct : Way::ring;
  switch (shape.collective) {
    case Collective::all_reduce:
      if (ranks == 2 && bytes <= tuning.pair_bytes) return Way::exchange;
      if (ranks <= tuning.exchange_ranks && bytes * (ranks - 1) <= tuning.exchange_bytes) {
        return Way::exchange;
      }
      return bytes <= tuning.star_bytes ? Way::star : large;
    case Collective::reduce:
      return small || ranks <= tuning.star_ranks ? Way::star : large;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return large;
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return Way::direct;
    case Collective::broadcast:
      return small ? Way::tree : Way::chain;
    case Collective::barrier:
      break;
  }
  return Way::dissemination;
}

std::string_view way_name(Way way) {
  switch (way) {
    case Way::exchange:
      return "exchange";
    case Way::star:
      return "star";
    case Way::direct:
      return "direct";
    case Way::ring:
      return "ring";
    case Way::tree:
      return "tree";
    case Way::chain:
      return "chain";
    case Way::copy:
    case Way::dissemination:
      break;
  }
  return "";
}

bool has_way(Collective collective, Way way) {
  switch (way) {
    case Way::exchange:
      return collective == Collective::all_reduce;
    case Way::star:
      return collective == Collective::all_reduce || collective == Collective::reduce;
    case Way::direct:
      return collective != Collective::broadcast && collective != Collective::barrier;
    case Way::ring:
      return traits_of(collective).reduces || collective == Collective::all_gather;
    case Way::tree:
    case Way::chain:
      return collective == Collective::broadcast;
    case Way::copy:
    case Way::dissemination:
      break;
  }
  return false;
}

namespace {

std::string words_for(Way way, const Tuning& tuning) {
  const auto pieces = fmt::format("granules of {} KiB", tuning.granule_bytes >> 10);
  switch (way) {
    case Way::copy:
      return "a copy";
    case Way::exchange:
      return "each with each";
    case Way::star:
      return "all with one";
    case Way::direct:
      return fmt::format("straight to whoever owns a slice, {}, {} ahead", pieces, tuning.window);
    case Way::ring:
      return fmt::format("cut-through ring, {}, {} ahead", pieces, tuning.window);
    case Way::tree:
      return "binomial tree";
    case Way::chain:
      return "chain, " + pieces;
    case Way::dissemination:
      return "dissemination";
  }
  return "";
}

}  // namespace

std::string describe_way(Way way, const Tuning& tuning) {
  return words_for(way, tuning) + (tuning.by_rule ? " (DLAUNCH_PLAN)" : "");
}

Program make_program(const Shape& shape, int rank, int ranks, const Tuning& tuning) {
  if (!shape.members.empty()) return make_members_program(shape, rank, ranks, tuning);
  Builder b(rank, ranks);
  copy_own_data(shape, b);
  switch (way_of(shape, ranks, tuning)) {
    case Way::copy:
      break;
    case Way::exchange:
      exchange_all_reduce(shape, b);
      break;
    case Way::star:
      star_reduction(shape, tuning, b);
      break;
    case Way::direct:
      traits_of(shape.collective).reduces ? direct_reduction(shape, tuning, b)
                                          : direct_exchange(shape, tuning, b);
      break;
    case Way::ring:
      ring_schedule(shape, tuning, b);
      break;
    case Way::tree:
      binomial_broadcast(shape, b);
      break;
    case Way::chain:
      chain_broadcast(shape, tuning, b);
      break;
    case Way::dissemination:
      dissemination_barrier(b);
      break;
  }
  return b.take();
}

}  // namespace dlaunch

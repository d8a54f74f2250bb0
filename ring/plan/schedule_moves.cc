#include <bit>

#include "ring/plan/schedule_algorithms.h"

namespace dlaunch {

void direct_exchange(const Shape& shape, const Tuning& tuning, ProgramBuilder& b) {
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

void binomial_broadcast(const Shape& shape, ProgramBuilder& b) {
  const std::size_t bytes = shape.count * shape.element_bytes;
  const auto location = b.rank() == shape.root ? Location{Region::in, 0} : Location{Region::out, 0};
  const auto from_root = static_cast<unsigned>(b.at_distance(-shape.root));
  // The subtree below this rank spans the distances up to its own lowest bit.
  unsigned reach = std::bit_ceil(static_cast<unsigned>(b.ranks()));
  std::int32_t have = kNoStep;
  if (from_root != 0) {
    reach = from_root & -from_root;
    have = b.recv(b.at_distance(-static_cast<int>(reach)), location, bytes, kNoStep);
  }
  for (unsigned d = reach / 2; d > 0; d /= 2) {
    if (from_root + d < static_cast<unsigned>(b.ranks())) {
      b.send(b.at_distance(static_cast<int>(d)), location, bytes, have);
    }
  }
}

void chain_broadcast(const Shape& shape, const Tuning& tuning, ProgramBuilder& b) {
  const Cut cut{.bytes = shape.count * shape.element_bytes, .granule = granule_of(shape, tuning)};
  const bool root = b.rank() == shape.root, last = b.at_distance(1) == shape.root;
  for (std::size_t i = 0; i < cut.count(); ++i) {
    const Location location{root ? Region::in : Region::out, cut.offset(i)};
    const auto have = root ? kNoStep : b.recv(b.at_distance(-1), location, cut.size(i), kNoStep);
    if (!last) b.send(b.at_distance(1), location, cut.size(i), have);
  }
}

void dissemination_barrier(ProgramBuilder& b) {
  // By round: the join of this round's frame and those of all earlier rounds. Built from the last
  // round back, because each leads to the next.
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

void copy_own_data(const Shape& shape, ProgramBuilder& b, std::int32_t then) {
  const std::size_t element = shape.element_bytes;
  if (const Delivery own = delivery(shape, b.rank(), b.rank()); own.exists) {
    b.copy({Region::in, own.from * element}, {Region::out, own.to * element}, own.count * element,
           then);
  }
  if (b.ranks() == 1 && traits_of(shape.collective).reduces) {
    b.copy({Region::in, 0}, {Region::out, 0}, shape.count * element);
  }
}

}  // namespace dlaunch

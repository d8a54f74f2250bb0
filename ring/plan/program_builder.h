// Tools for the algorithms of ring/plan/schedule.h: a builder of programs, and cuts of byte ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ring/plan/program.h"
#include "ring/plan/schedule.h"

namespace dlaunch {

// Adds steps to a program and links them.
class ProgramBuilder {
 public:
  ProgramBuilder(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    program_.sends.resize(ranks);
    program_.recvs.resize(ranks);
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int at_distance(int distance) const { return ((rank_ + distance) % ranks_ + ranks_) % ranks_; }

  std::int32_t send(int peer, Location from, std::size_t bytes, std::int32_t needs,
                    std::int32_t then = kNoStep) {
    const auto id = add({.kind = StepKind::send,
                         .peer = static_cast<std::int16_t>(peer),
                         .needs = needs,
                         .then = then,
                         .location = from,
                         .bytes = bytes});
    if (program_.sends[peer].empty()) program_.peers.push_back(static_cast<std::int16_t>(peer));
    program_.sends[peer].push_back(id);
    return id;
  }
  std::int32_t recv(int peer, Location to, std::size_t bytes, std::int32_t needs,
                    std::int32_t then = kNoStep) {
    const auto id = add({.kind = StepKind::recv,
                         .peer = static_cast<std::int16_t>(peer),
                         .needs = needs,
                         .then = then,
                         .location = to,
                         .bytes = bytes});
    program_.recvs[peer].push_back(id);
    return id;
  }
  // Runs when all steps with it as their `then` are done; add operands by operand().
  std::int32_t reduce(Location to, std::size_t bytes, bool last, std::int32_t then = kNoStep) {
    return add({.kind = StepKind::reduce,
                .last = last,
                .then = then,
                .first_operand = static_cast<std::uint32_t>(program_.operands.size()),
                .location = to,
                .bytes = bytes});
  }
  std::int32_t join(std::int32_t then = kNoStep) {
    return add({.kind = StepKind::reduce, .then = then});
  }
  void operand(Location location) {
    program_.operands.push_back(location);
    ++program_.steps.back().operand_count;
  }
  void copy(Location from, Location to, std::size_t bytes, std::int32_t then = kNoStep) {
    add({.kind = StepKind::copy,
         .then = then,
         .first_operand = static_cast<std::uint32_t>(program_.operands.size()),
         .location = to,
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
    for (int d = 1; d < ranks_; ++d) {
      const int peer = at_distance(d);
      if (program_.sends[peer].empty()) program_.peers.push_back(static_cast<std::int16_t>(peer));
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

inline std::size_t granule_of(const Shape& shape, const Tuning& tuning) {
  return std::max(tuning.granule_bytes / shape.element_bytes, std::size_t{1}) * shape.element_bytes;
}

inline Cut cut_of(const Shape& shape, std::size_t first, std::size_t count, const Tuning& tuning) {
  return {.begin = first * shape.element_bytes,
          .bytes = count * shape.element_bytes,
          .granule = granule_of(shape, tuning)};
}

}  // namespace dlaunch

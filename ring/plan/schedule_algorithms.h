// The algorithms that ring/plan/schedule.h chooses from: each adds one rank's steps.
#pragma once

#include "ring/plan/program_builder.h"

namespace dlaunch {

// The part of the data that rank `owner` reduces, in elements: for all_reduce and reduce near-equal
// slices, for the others every rank's own part.
Part slice_of(const Shape& shape, int owner, int ranks);

// For reductions.
void exchange_all_reduce(const Shape& shape, ProgramBuilder& b);
// The same values as in an exchange, in the rounds of Bruck et al. (1997): in ceil(log2 n) rounds
// each rank sends all its values, its own and others', to one rank, twice as far away each round.
void doubling_all_reduce(const Shape& shape, ProgramBuilder& b);
// One rank combines, and answers if all want the result: 2(n-1) frames instead of n(n-1) if one
// granule is enough.
void star_reduction(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
// Up a binomial tree (of rank 0, or of the root of a reduce), where each rank adds the sums below
// it to its own values, and down again if all want the result: as many frames, but a rank exchanges
// them with log2(n) ranks only. Sums are in the order of ranks, but not one pass over all of them.
void tree_reduction(const Shape& shape, ProgramBuilder& b);
// Each rank owns a slice, takes in the others' values of it, and sends the result to the ranks that
// want it.
void direct_reduction(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
// For an all_gather, too. Each rank owns a slice, as before, but the values and the results go
// along the rows and columns of a grid of ranks: to about 2 sqrt(n) ranks instead of n - 1, in
// twice as many latencies. Values are sent almost twice, results once. The number of ranks decides
// the grid.
void grid_schedule(const Shape& shape, ProgramBuilder& b);
// The cut-through ring, for an all_gather, too.
void ring_schedule(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);

// Each rank owns a slice, as in a direct reduction, and values and results go from rack to rack
// once for each rack, by way of one rank there. For an all_gather, too. Without Tuning::racks all
// ranks are in one rack, and it is a direct reduction.
void rack_schedule(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);

// For collectives that only move data.
void direct_exchange(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
void binomial_broadcast(const Shape& shape, ProgramBuilder& b);
void chain_broadcast(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
// Dissemination (Hensgen, Finkel and Manber, 1988): after ceil(log2 n) rounds each rank has heard
// from all, directly or through others.
void dissemination_barrier(ProgramBuilder& b);
// Copies what a rank gives itself.
void copy_own_data(const Shape& shape, ProgramBuilder& b, std::int32_t then = kNoStep);

}  // namespace dlaunch

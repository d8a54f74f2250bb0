// The ways of doing a collective that ring/plan/schedule.h chooses from: each adds one rank's
// steps.
#pragma once

#include "ring/plan/program_builder.h"

namespace dlaunch {

// Of reductions.
void exchange_all_reduce(const Shape& shape, ProgramBuilder& b);
// The same values as in an exchange, in the rounds of Bruck et al. (1997): each hands on all it
// has, its own and others', over twice the distance of the round before, to ceil(log2 n) ranks.
void doubling_all_reduce(const Shape& shape, ProgramBuilder& b);
// One rank combines, and answers if all want to know: 2(n-1) frames instead of n(n-1) where one
// granule is enough.
void star_reduction(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
// Each rank owns a slice, takes in the others' values of it, and tells who wants to know.
void direct_reduction(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
// The cut-through ring, for an all_gather, too.
void ring_schedule(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);

// Of what only moves data.
void direct_exchange(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
void binomial_broadcast(const Shape& shape, ProgramBuilder& b);
void chain_broadcast(const Shape& shape, const Tuning& tuning, ProgramBuilder& b);
// Dissemination (Hensgen, Finkel and Manber, 1988): after ceil(log2 n) rounds everybody has heard,
// through others, from everybody.
void dissemination_barrier(ProgramBuilder& b);
// What a rank gives itself.
void copy_own_data(const Shape& shape, ProgramBuilder& b);

}  // namespace dlaunch

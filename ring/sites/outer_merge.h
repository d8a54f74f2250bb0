// What an outer optimizer contributes to a merge of sites, and what a merge does to its state.
// Pure: sites and the replay of a journal share it, so that both get the same bits.
//
// A payload is a MergeHead and the encoded values of a fragment's gradient. A state is a StateHead,
// the anchor and the momentum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ring/compress/outer_state.h"
#include "ring/kernels/wire_codec.h"
#include "ring/sites/site_merge.h"

namespace dlaunch {

// Where hashes of payloads and states begin.
inline constexpr std::uint64_t kHashOfNothing = 0xcbf29ce484222325;

// Where the outer optimizers are when they make a merge: equal in all its payloads.
struct MergeHead {
  std::uint64_t common = 0;  // a hash of what must be equal at all sites
  std::uint64_t steps = 0;   // after which the fragment was sent
  std::uint32_t fragment = 0;
  std::uint32_t finishing = 0;  // fragments that are averaged out of turn at these steps, with this
  bool operator==(const MergeHead&) const = default;
};

// How much there is to a payload of so many values.
std::size_t payload_bytes(WireCodec codec, std::size_t values);

// The payload with these values. lost, as many values or null: what the codec loses of them; 0
// where that is not finite.
std::string encode_payload(const MergeHead& head, WireCodec codec, std::span<const float> values,
                           float* lost);

// Of a payload in a merge of fragments with so many values. Errc::protocol: it is no such payload.
Result<MergeHead> head_of(std::string_view payload);

// values = the average of the payloads in their order. Errc::mismatch names the sites, by `names`
// in the same order, that have made something else than the first.
Result<MergeHead> average_payloads(const std::vector<std::string_view>& payloads,
                                   const std::vector<std::string>& names, WireCodec codec,
                                   OuterState& state, std::uint64_t common);

// The state after the merge whose average is in the fragment's gradient.
void apply_merge(OuterState& state, const MergeId& id, const MergeHead& head);

// The beginning of a copied state.
struct StateHead {
  std::uint64_t common = 0;
  std::uint64_t elements = 0;
  MergeId id;
  std::uint64_t steps = 0, finished = 0, finishing = 0;
  std::int32_t fragments = 1;
  float learning_rate = 1, momentum = 0;
  std::uint8_t nesterov = 0;
  WireCodec codec = WireCodec::none;
};

// Of the anchor, the momentum and where they belong.
std::uint64_t hash_of_state(const OuterState& state);
std::string copy_state(const OuterState& state, WireCodec codec, std::uint64_t common);
Result<StateHead> state_head(std::string_view copy);
// The outer optimizer continues with the copy at its steps. Errc::mismatch: it is that of another
// optimizer.
Result<void> take_state(OuterState& state, std::string_view copy, std::uint64_t common);

// Of a payload: which bytes are in it.
std::uint64_t digest_of(std::string_view bytes);

// The same, while the payload comes in pieces.
class PayloadDigest {
 public:
  void add(std::string_view piece);
  std::uint64_t value() const;

 private:
  std::uint64_t hash_ = kHashOfNothing;  // of whole words
  std::string rest_;                     // the bytes behind them
};

}  // namespace dlaunch
